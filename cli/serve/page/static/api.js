/** Calls of the server. What goes wrong is an ApiError whose message is one line. */

import { store, stored } from "./storage.js";

export class ApiError extends Error {
  /** status: of HTTP, 0 where nothing was answered; param: the field that is to blame; retry: seconds, where it says so */
  constructor(message, { status = 0, param = null, retry = null } = {}) {
    super(message);
    Object.assign(this, { status, param, retry });
  }
}

const BASE = new URL("..", import.meta.url); // of the server, which may stand below a path
const KEY = "hybrid-key";
let held = null; // where the session's storage is refused

/** The key that goes with every request; kept until the browser's tab is closed. */
export function setKey(key) {
  held = key;
  store(KEY, key, "sessionStorage");
}

function headers() {
  const known = held ?? stored(KEY, "sessionStorage");
  return { "Content-Type": "application/json", ...(known && { Authorization: `Bearer ${known}` }) };
}

/** The response, if it is no refusal. */
export async function call(path, { method = "GET", body, signal } = {}) {
  let response;
  try {
    response = await fetch(new URL(path, BASE), { method, headers: headers(), body: body && JSON.stringify(body), signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server cannot be reached. Is it still running?");
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

async function refusal(response) {
  const more = { status: response.status, retry: Number(response.headers.get("Retry-After")) || null };
  try {
    const { error } = await response.json();
    return new ApiError(error.message, { ...more, param: error.param });
  } catch {
    return new ApiError(`The server answers with status ${response.status}.`, more);
  }
}

/** The JSON of a GET. */
export const get = async (path) => (await call(path)).json();

/** What going to each of these conversations would cost: [{tokens, reused, read} | {error} | {unknown, on_disk}: the model is not loaded]. Each has what changes a prompt; pictures: data URLs by the id that stands for them in "picture:ID". */
export async function costs(conversations, { model, pictures, signal } = {}) {
  const found = [];
  for (let at = 0; at < conversations.length; at += 16) {
    const part = conversations.slice(at, at + 16);
    const ids = new Set([...JSON.stringify(part).matchAll(/"picture:([\w-]+)"/g)].map(([, id]) => id));
    const body = { model, conversations: part, pictures: Object.fromEntries([...pictures].filter(([id]) => ids.has(id))) };
    const response = await call("page/costs", { method: "POST", body, signal });
    found.push(...(await response.json()).costs);
  }
  return found;
}

/**
 * The next message of a conversation, as it is drawn. Returns {finish, usage, timings}.
 * @param {Object} request as /v1/chat/completions takes it
 * @param {function(Object): void} onDelta gets {content, reasoning, toolCalls, logprobs, timings, progress}, each where there is news
 */
export async function streamChat(request, { signal, onDelta }) {
  const body = { ...request, stream: true, stream_options: { include_usage: true }, timings_per_token: true, return_progress: true };
  const response = await call("v1/chat/completions", { method: "POST", body, signal });
  const end = { finish: null, usage: null, timings: null };
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return end;
    const event = JSON.parse(data);
    if (event.error) throw new ApiError(event.error.message, { status: event.error.code, param: event.error.param });
    const choice = event.choices[0];
    end.finish = choice?.finish_reason ?? end.finish;
    end.usage = event.usage ?? end.usage;
    end.timings = event.timings ?? end.timings;
    onDelta({
      content: choice?.delta.content || "",
      reasoning: choice?.delta.reasoning_content || "",
      toolCalls: choice?.delta.tool_calls ?? [],
      logprobs: choice?.logprobs?.content ?? [],
      timings: event.timings ?? null,
      progress: event.prompt_progress ?? null,
    });
  }
  throw new ApiError("The connection ended in the middle of the answer.");
}

/** The data of server-sent events. Comments, which keep a connection open, are left out. */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line.startsWith("data: ")) yield line.slice(6);
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The connection ended in the middle of the answer.");
  } finally {
    reader.cancel().catch(() => {});
  }
}
