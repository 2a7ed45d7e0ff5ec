/** The conversations of this browser: kept in IndexedDB, listed, renamed, removed; out to a file and in from one. */

import { byAge, entryOf, openStore, recordOf } from "./chat_store.js";
import { byId, el, iconButton } from "./dom.js";
import { HistoryList } from "./history_list.js";
import { Tree } from "./tree.js";

const QUIET = 400; // milliseconds without news before a conversation is written
const LATEST = 4000; // it is written after these although news goes on
const why = (error) => error?.message ?? "the browser refuses it";

export class History {
  /**
   * @param {Object} doing
   * - onOpen(chat, at): {id, title, system, model, tree}; the id of a found message, if any
   * - onNew(): another is wanted, or the one that is shown has been removed
   * - onRename(chat): it has another title now
   * - onOthers(chat): another tab has added something to it
   * - isBusy(node): whether a message grows here
   */
  constructor({ onOpen, onNew, onRename = () => {}, onOthers = () => {}, isBusy = () => false }) {
    Object.assign(this, { onOpen, onNew, onRename, onOthers, isBusy });
    this.live = new Map(); // id -> the conversation that the page works with: opened twice it is the same one
    this.known = new Map(); // id -> ids of the messages that it has or had here
    this.removed = new Set(); // an answer may still go on in them
    this.waiting = new Map(); // id -> {since, timer} of what is not yet written
    this.search = null; // until its field is used
    this.store = openStore();
    this.tabs = new BroadcastChannel("hybrid-chats"); // of this browser: each tells which conversation it has written
    this.tabs.onmessage = ({ data: id }) => this.#tried(() => this.#renew(id));
    this.list = new HistoryList(byId("history-list"), {
      open: (id) => this.#tried(async () => onOpen(await this.#chat(id), this.list.found?.get(id)?.at)),
      rename: (id, title) => this.#tried(() => this.#rename(id, title)),
      remove: (id) => this.drop(id),
    });
    this.note = byId("history-note");
    this.note.setAttribute("role", "status");
    const chosen = async () => {
      if (file.files[0]) await this.import(file.files[0]);
      file.value = ""; // the same one may be chosen again
    };
    const file = el("input", { type: "file", accept: ".json,application/json", hidden: true, onchange: chosen });
    const field = el("input", { type: "search", id: "history-search", placeholder: "Search", "aria-label": "Search conversations", onfocus: async () => {
      const { Search } = await import("./search.js");
      this.search ??= new Search(field, this.list, this.store, (text) => this.#say(text));
    } });
    byId("history-new").append(iconButton("add", "New conversation", onNew, { wide: true }), field);
    byId("history-foot").append(
      iconButton("export", "Export all", () => this.#tried(() => this.exportAll()), { wide: true }),
      iconButton("import", "Import", () => file.click(), { wide: true }), file);
    document.addEventListener("visibilitychange", () => document.hidden && this.#flush());
    addEventListener("pagehide", () => this.#flush(true));
  }

  /** Reads and lists what is kept. The newest conversation, or null. */
  async load() {
    const store = await this.store;
    if (!store.lasting) this.#say("This browser keeps nothing here: conversations are gone when the page is closed.");
    const found = [];
    await store.each((record) => found.push(entryOf(record)));
    found.sort(byAge).forEach((entry) => this.list.place(entry));
    return found.length ? this.#chat(found.at(-1).id) : null;
  }

  /** Keeps a conversation: soon, not at every token. */
  save(chat) {
    if (this.removed.has(chat.id)) return;
    this.live.set(chat.id, chat);
    const now = performance.now();
    const { since, timer } = this.waiting.get(chat.id) ?? { since: now };
    clearTimeout(timer);
    const wait = Math.max(0, Math.min(QUIET, since + LATEST - now));
    this.waiting.set(chat.id, { since, timer: setTimeout(() => this.#write([chat.id]), wait) });
  }

  /** Marks the one that is shown. */
  select(id) {
    this.list.select(id);
  }

  async exportAll() {
    const { exportChats } = await import("./chats_file.js");
    await this.#flush();
    this.#say(await exportChats(await this.store));
  }

  /** Takes all conversations of a file, or none and says why. */
  async import(file) {
    try {
      const { importChats } = await import("./chats_file.js");
      const isUsed = (id) => this.list.entries.has(id) || this.live.has(id) || this.removed.has(id);
      const { records, told } = await importChats(file, await this.store, isUsed);
      records.forEach((record) => this.#place(record));
      this.#say(told);
    } catch (error) {
      this.#say(`Nothing was imported. ${error.message}`);
    }
  }

  #place(record) {
    this.list.place(entryOf(record));
    this.search?.put(record);
  }

  // --- what is kept ---
  /** Writes these; `going`: at once, as the page may not be there for an answer of the store. */
  async #write(ids, going = false) {
    const records = ids.map((id) => this.live.get(id)).filter(Boolean).map(recordOf);
    for (const id of ids) this.#forget(id);
    for (const record of records) {
      this.#place(record);
      this.#knows(record);
    }
    try {
      const store = await this.store;
      if (going) await store.put(records);
      else await Promise.all(records.map((record) => store.merge(record, this.known.get(record.id))));
      for (const { id } of records) this.tabs.postMessage(id);
    } catch (error) {
      this.#say(`Not kept: ${why(error)}.`);
    }
  }

  /** It no longer waits to be written. */
  #forget(id) {
    clearTimeout(this.waiting.get(id)?.timer);
    this.waiting.delete(id);
  }

  /** Writes what waits. */
  #flush(going) {
    return this.#write([...this.waiting.keys()], going);
  }

  #knows({ id, nodes }) {
    this.known.set(id, new Set([...(this.known.get(id) ?? []), ...nodes.map((node) => node.id)]));
  }

  /** Another tab has written this one. */
  async #renew(id) {
    const record = await (await this.store).get(id);
    if (!record || this.removed.has(id)) return;
    this.#place(record);
    const chat = this.live.get(id);
    const known = this.known.get(id);
    if (!chat?.tree.absorb(record.nodes, (node, own) => (own ? this.isBusy(own) : known?.has(node.id)))) return;
    this.#knows(record);
    this.onOthers(chat);
  }

  /** A conversation to work with. An answer that the page did not see end was stopped. */
  async #chat(id) {
    const record = this.live.has(id) ? null : await (await this.store).get(id);
    if (!this.live.has(id)) {
      if (!record) throw new Error("it is no longer there");
      const { title, system, model, nodes, head } = record;
      for (const node of nodes) if (node.role === "assistant") node.finish ??= "stopped";
      this.#knows(record);
      this.live.set(id, { id, title, system, model, tree: new Tree(nodes, head) });
    }
    return this.live.get(id);
  }

  /** Removes a conversation; another is wanted if it was shown. */
  drop(id) {
    return this.#tried(() => this.#remove(id));
  }

  async #remove(id) {
    this.removed.add(id);
    this.#forget(id);
    const chat = this.live.get(id);
    this.live.delete(id);
    if (this.list.rows.has(id) && !this.list.take(id)) byId("history-new").querySelector("button").focus();
    if (id === this.list.current) this.onNew(); // before anything can be asked in it
    const store = await this.store;
    const nodes = [...((await store.get(id))?.nodes ?? []), ...(chat?.tree.nodes.values() ?? [])];
    await store.remove(id);
    await this.dropPictures(nodes);
  }

  /** Removes the pictures of messages that are gone, unless others have them, too. */
  async dropPictures(nodes) {
    const gone = new Set(nodes.flatMap(({ pictures = [] }) => pictures.map(({ id }) => id)));
    if (!gone.size) return;
    await this.#flush();
    await (await import("./pictures.js")).sweep(gone);
  }

  async #tried(act) {
    try {
      await act();
    } catch (error) {
      this.#say(`That has failed: ${why(error)}.`);
    }
  }

  async #rename(id, title) {
    const chat = await this.#chat(id);
    chat.title = title.trim().slice(0, 200);
    await this.#write([id]);
    this.onRename(chat);
  }

  #say(text) {
    this.note.textContent = text;
    this.note.hidden = !text;
  }
}
