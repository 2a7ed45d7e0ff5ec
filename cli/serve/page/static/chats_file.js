/** Conversations as a file. Whoever wrote it may have meant harm: every field is checked, and only known ones are taken. */

import { byAge } from "./chat_store.js";
import { el } from "./dom.js";
import { newId } from "./tree.js";

const pictures = () => import("./pictures.js");

const MOST_BYTES = 50e6;
const MOST_NODES = 200_000;
const FORMAT = "hybrid-chats";
const TIMINGS = ["prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_ms", "predicted_per_token_ms", "predicted_per_second"];

function fail(at, what) {
  throw new Error(`${at}: ${what}`);
}

/** What was found in the place of something else, in a few words. */
function shown(value) {
  if (value === undefined) return "nothing";
  if (value === null || typeof value !== "object") return JSON.stringify(typeof value === "string" ? value.slice(0, 40) : value);
  return Array.isArray(value) ? "a list" : "an object";
}

// --- kinds of values: each takes one and its place, and returns what is kept of it ---
const expected = (what, is) => (value, at) => (is(value) ? value : fail(at, `expected ${what}, found ${shown(value)}`));
const text = (most = MOST_BYTES) => expected(`a text of at most ${most} characters`, (value) => typeof value === "string" && value.length <= most);
const number = expected("a number", Number.isFinite);
const amount = expected("a number from 0 on", (value) => Number.isFinite(value) && value >= 0);
const byte = expected("a byte", (value) => Number.isInteger(value) && value >= 0 && value < 256);
const time = expected("a time in milliseconds", (value) => Number.isFinite(value) && value >= 0 && value <= 8.64e15); // as dates can be
const id = expected("an id of letters, digits, - and _, at most 64", (value) => typeof value === "string" && /^[\w-]{1,64}$/.test(value));
const dataUrl = expected("a PNG, JPEG or WebP picture as a data URL", (value) => {
  const head = typeof value === "string" && /^data:image\/(png|jpeg|webp);base64,/.exec(value.slice(0, 40))?.[0];
  return Boolean(head) && !/[^A-Za-z0-9+/=]/.test(value.slice(head.length));
});
const oneOf = (...words) => expected(words.join(" or "), (value) => words.includes(value));
const maybe = (kind) => (value, at) => (value === null || value === undefined ? null : kind(value, at));
const isList = expected("a list", Array.isArray);
const isObject = expected("an object", (value) => typeof value === "object" && value !== null && !Array.isArray(value));
const list = (kind) => (value, at) => isList(value, at).map((each, index) => kind(each, `${at}[${index}]`));

function object(fields) {
  const known = Object.entries(fields);
  return (value, at) => {
    isObject(value, at);
    return Object.fromEntries(known.map(([name, kind]) => [name, kind(value[name], `${at}.${name}`)]));
  };
}

const token = { token: text(), logprob: maybe(number), bytes: maybe(list(byte)) };
const node = object({
  id,
  parent: maybe(id),
  role: oneOf("user", "assistant", "tool"),
  content: text(),
  files: (value, at) => list(object({ name: text(200), text: text() }))(value ?? [], at),
  pictures: (value, at) => list(object({ id, name: text(200), width: amount, height: amount, small: dataUrl, tokens: maybe(amount), ms: maybe(amount) }))(value ?? [], at),
  reasoning: text(),
  toolCalls: list(object({ id: text(200), name: text(200), arguments: text() })),
  toolCallId: maybe(text(200)),
  logprobs: maybe(list(object({ ...token, top_logprobs: maybe(list(object(token))), kind: maybe(oneOf("text", "thought")) }))),
  timings: maybe(object({ cache_n: amount, prompt_n: amount, predicted_n: amount, ...Object.fromEntries(TIMINGS.map((name) => [name, maybe(amount)])) })),
  usage: maybe(object({
    prompt_tokens: maybe(amount),
    completion_tokens: maybe(amount),
    completion_tokens_details: maybe(object({ reasoning_tokens: maybe(amount) })),
    cache: maybe(object({ processed: amount, reason: text(1000) })),
  })),
  finish: maybe(text(40)),
  model: maybe(text(200)),
  error: maybe(text(1000)),
  errorParam: maybe(text(200)),
  status: maybe(amount),
  created: time,
  revision: maybe(amount),
});
const chat = object({ id, title: text(200), system: text(), model: maybe(text(200)), created: time, changed: time, nodes: list(node), head: maybe(id) });

/**
 * The conversations of a file, and its pictures.
 * @param {string} json
 * @returns {{chats: Object[], pictures: Map}} chats: with the fields that are known, and no others; pictures: data URLs by id
 * @throws {Error} which says where something is wrong
 */
function readChats(json) {
  let file;
  try {
    file = JSON.parse(json);
  } catch (error) {
    fail("the file", `not JSON (${error.message.slice(0, 120)})`);
  }
  isObject(file, "the file");
  oneOf(FORMAT)(file.format, "format");
  oneOf(1)(file.version, "version");
  let n = 0;
  for (const [index, each] of isList(file.chats, "chats").entries()) {
    const at = `chats[${index}]`;
    n += isList(isObject(each, at).nodes, `${at}.nodes`).length;
  }
  if (n > MOST_NODES) fail("chats", `${n} messages, at most ${MOST_NODES} are taken`);
  const found = list(chat)(file.chats, "chats");
  const ids = new Set();
  for (const [index, each] of found.entries()) {
    if (ids.has(each.id)) fail(`chats[${index}].id`, `${shown(each.id)} is there twice`);
    ids.add(each.id);
    checkTree(each, `chats[${index}]`);
  }
  const urls = Object.entries(isObject(file.pictures ?? {}, "pictures")).map(([name, url]) => [id(name, "pictures"), dataUrl(url, `pictures.${name}`)]);
  return { chats: found, pictures: new Map(urls) };
}

/** Parents come before their children: so there is no cycle. */
function checkTree({ nodes, head }, at) {
  const ids = new Set([null]);
  for (const [index, { id: own, parent }] of nodes.entries()) {
    if (ids.has(own)) fail(`${at}.nodes[${index}].id`, `${shown(own)} is there twice`);
    if (!ids.has(parent)) fail(`${at}.nodes[${index}].parent`, `no message ${shown(parent)} before it`);
    ids.add(own);
  }
  if (!ids.has(head)) fail(`${at}.head`, `no message ${shown(head)}`);
}

const counted = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

/**
 * The file of these conversations. Where it would be too large to be imported it has no probabilities, then not the pictures
 * of the oldest conversations: {blob, without: what it lacks for its size}.
 */
async function writeChats(chats) {
  const begun = (without) => new Blob([JSON.stringify({ format: FORMAT, version: 1, chats }, (name, value) => (name === without ? undefined : value)).slice(0, -1)]);
  const newest = chats.toSorted(byAge).reverse().flatMap(({ nodes }) => nodes.flatMap((each) => each.pictures ?? []));
  const ids = new Set(newest.map((picture) => picture.id));
  const { urlOf } = ids.size ? await pictures() : {};
  const parts = [];
  let size = 0;
  for (const one of ids) {
    const url = size < MOST_BYTES && (await urlOf(one));
    if (!url) continue;
    parts.push(new Blob([`${parts.length ? "," : ""}"${one}":"${url}"`]));
    size += parts.at(-1).size;
  }
  const ends = [',"pictures":{', "}}"];
  const room = MOST_BYTES - ends.join("").length;
  const without = [];
  let begin = begun(null);
  if (begin.size + size > room) {
    begin = begun("logprobs");
    without.push("probabilities");
  }
  const all = parts.length;
  while (parts.length && begin.size + size > room) size -= parts.pop().size;
  if (parts.length < all) without.push("the pictures of older conversations");
  return { blob: new Blob([begin, ends[0], ...parts, ends[1]], { type: "application/json" }), without };
}

/** Saves all conversations of a store as a file. Returns a sentence about it. */
export async function exportChats(store) {
  const records = [];
  await store.each((record) => records.push(record));
  const { blob, without } = await writeChats(records);
  const href = URL.createObjectURL(blob);
  el("a", { href, download: `hybrid-chats-${new Date().toISOString().slice(0, 10)}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
  const [what, them] = [without.join(" and "), "with them the file would be too large to be imported"];
  return `${counted(records.length, "conversation")} exported${what && `, without ${what}: ${them}`}.`;
}

/** Puts the conversations of a file into a store, under another id where theirs is used: {records: the oldest first, told: a sentence}. */
export async function importChats(file, store, isUsed) {
  if (file.size > MOST_BYTES) throw new Error(`the file: ${Math.ceil(file.size / 1e6)} MB, at most ${MOST_BYTES / 1e6} are taken`);
  const { chats: records, pictures: urls } = readChats(await file.text());
  for (const record of records) if (isUsed(record.id)) record.id = newId();
  if (urls.size) await importPictures(records, urls);
  await store.put(records);
  return { records: records.sort(byAge), told: `${counted(records.length, "conversation")} imported.` };
}

/** Keeps the pictures of these conversations, all under new ids: what is here belongs to other conversations. */
async function importPictures(records, urls) {
  const { madeId, put } = await pictures();
  const ids = new Map([...urls.keys()].map((old) => [old, madeId()]));
  for (const { nodes } of records) for (const each of nodes) for (const picture of each.pictures) picture.id = ids.get(picture.id) ?? madeId();
  await put([...urls].map(([old, url]) => ({ id: ids.get(old), url })));
}
