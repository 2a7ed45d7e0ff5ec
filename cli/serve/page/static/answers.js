/** Answers of the server as nodes of a tree: asked for, taken as they come, stopped. */

import { ApiError, costs, streamChat } from "./api.js";
import { isAway, look, several } from "./model.js";
import { messageOf, wordsOf } from "./tree.js";

const PROMPT = ["messages", "tools", "tool_choice", "chat_template_kwargs", "reasoning_effort"]; // what changes the prompt

/** What the server is asked for the messages of a path; `settings`: fields of the request; `system`: before them; `urls`: of pictures, by id. */
export function requestOf(path, { system = "", settings = {}, urls } = {}) {
  const messages = path.map((node) => messageOf(node, urls));
  if (system) messages.unshift({ role: "system", content: system });
  return { ...settings, messages };
}

/** What going on behind each path would cost with a model; asked: {system, settings}. */
export async function prices(paths, asked, { model, signal }) {
  const pictures = [...new Set(paths.flat())].flatMap((node) => node.pictures);
  const urls = new Map(pictures.map(({ id }) => [id, `picture:${id}`]));
  const conversations = paths.map((path) => {
    const request = requestOf(path.filter((each) => wordsOf(each) || each.toolCalls.length), { ...asked, urls });
    const wanted = Object.fromEntries(PROMPT.filter((name) => name in request).map((name) => [name, request[name]]));
    if (request.messages.at(-1)?.role === "assistant") wanted.continue_final_message = false;
    return wanted;
  });
  const known = pictures.length ? await (await import("./pictures.js")).known(pictures) : new Map();
  return costs(conversations, { model, pictures: known, signal });
}

/** Answers that are being drawn, by the id of their node. */
export class Answers {
  /**
   * @param {function(Object, Object): void} onNews gets the conversation and the node, as it grows and when it has ended
   * @param {function(Object): void} onWait gets a node that has changed a little: each second until there is news
   */
  constructor(onNews, onWait) {
    Object.assign(this, { onNews, onWait });
    this.running = new Map();
  }

  isRunning({ id }) {
    return this.running.has(id);
  }

  /** What the node is waiting for: {since, progress, loads: the name of a model}; undefined: nothing. */
  state({ id }) {
    return this.running.get(id);
  }

  stop({ id }) {
    this.running.get(id)?.controller.abort();
  }

  /** Fills a node of the assistant, which may have a beginning: then the server goes on from there. settings: of the request */
  async fill(chat, node, settings) {
    const state = { controller: new AbortController(), since: performance.now(), progress: null };
    const waits = () => { state.loads = isAway(settings.model) && settings.model; };
    waits();
    const news = () => {
      node.revision += 1;
      this.onNews(chat, node);
    };
    const path = chat.tree.path(node.id);
    if (!node.content && !node.reasoning) {
      path.pop();
      Object.assign(node, { toolCalls: [], logprobs: null });
    }
    Object.assign(node, { error: null, errorParam: null, finish: null, timings: null, usage: null });
    this.running.set(node.id, state);
    news();
    const clock = setInterval(() => {
      if (!state.progress && several()) look().then(waits, () => {});
      this.onWait(node);
    }, 1000);
    try {
      const pictures = path.flatMap((each) => each.pictures);
      const urls = pictures.length ? await (await import("./pictures.js")).urlsOf(pictures) : null;
      const end = await streamChat(requestOf(path, { system: chat.system, settings, urls }), {
        signal: state.controller.signal,
        onDelta: (delta) => {
          if (delta.content || delta.reasoning) clearInterval(clock);
          state.progress = delta.progress;
          take(node, delta);
          news();
        },
      });
      Object.assign(node, end);
      this.#seen(path, end.usage?.pictures);
    } catch (error) {
      if (error.name === "AbortError") node.finish = "stopped";
      else Object.assign(node, { finish: "error", error: oneLine(error), errorParam: error.param ?? null, status: error.status ?? 0 });
    } finally {
      clearInterval(clock);
      this.running.delete(node.id);
      news();
    }
  }

  /** Notes with the pictures of a path what the server says of each: [{tokens, ms: to see it, 0 if it was known}]. */
  #seen(path, told) {
    const pictures = path.flatMap((node) => node.pictures.map((picture) => ({ node, picture })));
    if (told?.length !== pictures.length) return;
    for (const [index, { node, picture }] of pictures.entries()) {
      const { tokens, ms } = told[index];
      if (picture.tokens === tokens && !ms) continue;
      Object.assign(picture, { tokens, ms: ms || picture.ms || 0 });
      node.revision += 1;
      this.onWait(node);
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
