/** Answers of the server as nodes of a tree: asked for, taken as they come, stopped. */

import { ApiError, streamChat } from "./api.js";
import { messageOf } from "./tree.js";

/** What the server is asked for the messages of a path; `settings`: fields of the request; `system`: before them. */
export function requestOf(path, { system = "", settings = {} } = {}) {
  const messages = path.map(messageOf);
  if (system) messages.unshift({ role: "system", content: system });
  return { ...settings, messages };
}

/** Answers that are being drawn, by the id of their node. */
export class Answers {
  /** @param {function(Object, Object): void} onNews gets the conversation and the node, as it grows and when it has ended */
  constructor(onNews) {
    this.running = new Map();
    this.onNews = onNews;
  }

  isRunning(node) {
    return this.running.has(node.id);
  }

  /** What the node is waiting for: {since, progress}; undefined: nothing. */
  state(node) {
    return this.running.get(node.id);
  }

  stop(node) {
    this.running.get(node.id)?.controller.abort();
  }

  /**
   * Fills a node of the assistant, which may have a beginning: then the server goes on from there.
   * @param {Object} chat its conversation: {tree, system}
   * @param {Object} settings fields of the request
   */
  async fill(chat, node, settings) {
    const state = { controller: new AbortController(), since: performance.now(), progress: null, drawn: 0 };
    const path = chat.tree.path(node.id);
    const begun = node.content !== "" || node.reasoning !== "";
    if (!begun) path.pop();
    Object.assign(node, { error: null, errorParam: null, finish: null, timings: null, usage: null });
    this.running.set(node.id, state);
    this.onNews(chat, node);
    try {
      const request = requestOf(path, { system: chat.system, settings });
      const end = await streamChat(request, {
        signal: state.controller.signal,
        onDelta: (delta) => {
          state.progress = delta.progress;
          take(node, delta);
          this.onNews(chat, node);
        },
      });
      Object.assign(node, end);
    } catch (error) {
      if (error.name === "AbortError") {
        node.finish = "stopped";
      } else {
        Object.assign(node, { finish: "error", error: oneLine(error), errorParam: error.param ?? null, status: error.status ?? 0 });
      }
    } finally {
      this.running.delete(node.id);
      this.onNews(chat, node);
    }
  }
}

/** Puts news into a node. */
function take(node, { content, reasoning, toolCalls, logprobs, timings }) {
  node.content += content;
  node.reasoning += reasoning;
  for (const part of toolCalls) {
    const call = (node.toolCalls[part.index] ??= { id: "", name: "", arguments: "" });
    call.id = part.id ?? call.id;
    call.name += part.function?.name ?? "";
    call.arguments += part.function?.arguments ?? "";
  }
  if (logprobs.length) {
    const last = node.logprobs?.at(-1)?.kind ?? (content || !reasoning ? "text" : "thought");
    const kind = content ? "text" : reasoning ? "thought" : last; // part of a character is what stands around it
    (node.logprobs ??= []).push(...logprobs.map((token) => ({ ...token, kind })));
  }
  node.timings = timings ?? node.timings;
}

function oneLine(error) {
  const says = error instanceof ApiError ? error.message : `The page has failed: ${error.message}`;
  return says.split("\n")[0].slice(0, 500);
}
