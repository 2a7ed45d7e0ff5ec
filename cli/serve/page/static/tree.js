/**
 * The tree of turns of one conversation: data only.
 *
 * A node is one message:
 *   id, parent      of nodes; null: the conversation begins with it
 *   role            "user", "assistant" or "tool"
 *   content         its text
 *   files           [{name, text}] that a question comes with
 *   pictures        [{id, name, width, height, small, tokens, ms}], too: pictures.js keeps them; tokens, ms: where the server says them
 *   reasoning       thoughts before it, or ""
 *   toolCalls       [{id, name, arguments}], arguments as JSON text
 *   toolCallId      of a result: which call it answers
 *   logprobs        OpenAI's entries of its tokens, where they were asked for
 *   timings, usage  what it took, as the server says
 *   model           whose answer it is, where a server has several
 *   finish          "stop", "length", "tool_calls"; "stopped": by the reader; "error"; null: not yet
 *   error           one line, where it failed
 *   created         milliseconds since 1970
 *   revision        how often it has grown: of two versions the one with more is the newer
 *
 * Nothing is overwritten: to edit or to answer again adds a sibling. `head` is the last message of the path that is shown.
 */

const empty = () => ({
  content: "", files: [], pictures: [], reasoning: "", toolCalls: [], toolCallId: null, logprobs: null, timings: null, usage: null, finish: null, error: null, revision: 0,
});

/** An id that no other conversation has. (`randomUUID` is missing where a phone reaches the server over plain HTTP.) */
export const newId = () => [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** Of two versions of a message the one that is kept: the newer one, else the first; either may be missing. */
export const newer = (one, other) => (!one || (other?.revision ?? 0) > (one.revision ?? 0) ? other : one);

export class Tree {
  /** @param {Object[]} nodes parents before children */
  constructor(nodes = [], head = null) {
    this.nodes = new Map();
    this.below = new Map([[null, []]]); // parent -> children, the oldest first
    this.latest = new Map(); // parent -> the child that was shown last
    for (const node of nodes) this.#insert({ ...empty(), ...node });
    this.head = this.nodes.has(head) ? head : this.leaf(null);
    this.#remember();
  }

  #insert(node) {
    if (node.parent !== null && !this.nodes.has(node.parent)) throw new Error(`no node ${node.parent}`);
    if (this.nodes.has(node.id)) throw new Error(`two nodes ${node.id}`);
    this.nodes.set(node.id, node);
    this.below.set(node.id, []);
    this.below.get(node.parent).push(node.id);
  }

  get(id) {
    return this.nodes.get(id);
  }

  /** From the beginning to a node. */
  path(id = this.head) {
    const found = [];
    for (let at = id; at !== null; at = this.nodes.get(at).parent) found.push(this.nodes.get(at));
    return found.reverse();
  }

  /** What follows a node; null: the first messages. */
  children(id) {
    return this.below.get(id).map((child) => this.nodes.get(child));
  }

  /** The node and those that stand in its place on other branches. */
  siblings(id) {
    return this.children(this.nodes.get(id).parent);
  }

  /** Where the branch of a node ends: along what was shown last, else the newest. */
  leaf(id) {
    for (;;) {
      const below = this.below.get(id);
      if (below.length === 0) return id;
      const last = this.latest.get(id);
      id = below.includes(last) ? last : below.at(-1);
    }
  }

  /** A new message behind a node, which is shown from now on. */
  add(parent, fields) {
    const node = { ...empty(), id: newId(), created: Date.now(), ...fields, parent };
    this.#insert(node);
    this.goExactly(node.id);
    return node;
  }

  /** The same question in other words: a sibling. */
  edit(id, content, { files = [], pictures = [] } = {}) {
    const { parent, role, toolCallId } = this.nodes.get(id);
    return this.add(parent, { role, content, files, pictures, toolCallId });
  }

  /** Room for another answer: in the place of one, or to a question. */
  regenerate(id) {
    const { parent, role } = this.nodes.get(id);
    return this.add(role === "assistant" ? parent : id, { role: "assistant" });
  }

  /** Shows the branch of a node to its end. */
  go(id) {
    this.goExactly(this.leaf(id));
  }

  /** Shows the path that ends with a node: what is written next makes a branch there. */
  goExactly(id) {
    this.head = id;
    this.#remember();
  }

  /** Takes a node and all that follows it away. Returns them. */
  remove(id) {
    const { parent } = this.nodes.get(id);
    const gone = [id];
    for (const each of gone) gone.push(...this.below.get(each)); // grows while it is read
    const nodes = gone.map((each) => this.nodes.get(each));
    for (const each of gone) for (const map of [this.nodes, this.below, this.latest]) map.delete(each);
    this.below.set(parent, this.below.get(parent).filter((child) => child !== id));
    if (gone.includes(this.head)) this.go(parent);
    return nodes;
  }

  /** Takes over messages that are newer or not here, but for those that `isOurs(node, own)` says. Whether there were any. */
  absorb(nodes, isOurs) {
    let any = false;
    for (const node of nodes) {
      const own = this.nodes.get(node.id);
      if (newer(own, node) !== node || !this.below.has(node.parent) || isOurs(node, own)) continue;
      if (own) Object.assign(own, node);
      else this.#insert({ ...empty(), ...node });
      any = true;
    }
    return any;
  }

  /** Which child of each node is on the way to the head. */
  #remember() {
    for (const node of this.path()) this.latest.set(node.parent, node.id);
  }
}

/** The words of a message, or the names of its files and pictures where it has no words. */
export const wordsOf = ({ content, files = [], pictures = [] }) => content || [...pictures, ...files].map(({ name }) => name).join(", ");

/** A message as one text: its files, each with its name and in a fence longer than any in it, then its words. */
export function textOf({ content, files = [] }) {
  const fenced = files.map(({ name, text }) => {
    const fence = (text.match(/`+/g) ?? []).reduce((longest, run) => (run.length < longest.length ? longest : `${run}\``), "```");
    return `${name}:\n${fence}\n${text.replace(/\n?$/, "\n")}${fence}`;
  });
  return [...fenced, content].filter(Boolean).join("\n\n");
}

/** A node as the server takes it; urls: of its pictures, by id. */
export function messageOf(node, urls) {
  const { role, pictures, reasoning, toolCalls, toolCallId } = node;
  const text = textOf(node);
  const parts = () => [...pictures.map(({ id }) => ({ type: "image_url", image_url: { url: urls.get(id) } })), ...(text ? [{ type: "text", text }] : [])];
  const message = { role, content: pictures.length ? parts() : text };
  if (reasoning) message.reasoning_content = reasoning;
  if (toolCalls.length) message.tool_calls = toolCalls.map(({ id, name, arguments: given }) => ({ id, type: "function", function: { name, arguments: given } }));
  if (toolCallId !== null) message.tool_call_id = toolCallId;
  return message;
}
