/** Where conversations lie: the browser's database, or the memory of this page where that is refused. */

import { newer, wordsOf } from "./tree.js";

/** {lasting, each(visit), keys(): ids, get(id), put(records): all of them or none, merge(record, known): see `withOthers`, remove(id)} */
export async function openStore(name = "hybrid") {
  try {
    return inDatabase(
      await new Promise((done, failed) => {
        const request = indexedDB.open(name, 1);
        request.onupgradeneeded = () => request.result.createObjectStore("chats", { keyPath: "id" });
        request.onsuccess = () => done(request.result);
        request.onerror = () => failed(request.error);
      }),
    );
  } catch {
    const kept = new Map();
    const put = async (record) => kept.set(record.id, record);
    return {
      lasting: false,
      each: async (visit) => kept.forEach((record) => visit(record)),
      keys: async () => [...kept.keys()],
      get: async (id) => kept.get(id),
      put: async (records) => records.forEach(put),
      merge: put,
      remove: async (id) => kept.delete(id),
    };
  }
}

function inDatabase(db) {
  const run = (mode, act, atOnce = mode === "readwrite") =>
    new Promise((done, failed) => {
      const transaction = db.transaction("chats", mode);
      transaction.onabort = () => failed(transaction.error);
      try {
        const request = act(transaction.objectStore("chats"));
        if (atOnce) transaction.commit(); // the page may be going
        transaction.oncomplete = () => done(request?.result);
      } catch (error) {
        failed(error);
        transaction.abort();
      }
    });
  return {
    lasting: true,
    each: (visit) =>
      run("readonly", (store) => {
        store.openCursor().onsuccess = ({ target: { result: cursor } }) => {
          if (!cursor) return;
          visit(cursor.value);
          cursor.continue();
        };
      }),
    keys: () => run("readonly", (store) => store.getAllKeys()),
    get: (id) => run("readonly", (store) => store.get(id)),
    put: (records) => run("readwrite", (store) => records.forEach((record) => store.put(record))),
    merge: (record, known) =>
      run("readwrite", (store) => {
        store.get(record.id).onsuccess = ({ target: { result } }) => store.put(withOthers(record, result, known));
      }, false),
    remove: (id) => run("readwrite", (store) => store.delete(id)),
  };
}

/**
 * A record with what another tab has added to the kept one: messages that this tab has never had, and versions that have
 * grown further than those that this tab has.
 */
function withOthers(record, stored, known) {
  const theirs = new Map(stored?.nodes.map((node) => [node.id, node]));
  const nodes = record.nodes.map((node) => newer(node, theirs.get(node.id)));
  const ids = new Set([null, ...nodes.map((node) => node.id)]);
  for (const node of theirs.values()) {
    if (known.has(node.id) || !ids.has(node.parent)) continue;
    ids.add(node.id);
    nodes.push(node);
  }
  return { ...record, nodes, changed: Math.max(record.changed, stored?.changed ?? 0) };
}

/** A conversation as it is kept. Nothing but its messages makes it newer: neither a look at it nor a name. */
export function recordOf({ id, title, system = "", model = null, tree }) {
  const nodes = [...tree.nodes.values()].map((node) => ({ ...node, toolCalls: node.toolCalls.filter(Boolean) }));
  const times = nodes.map((node) => node.created);
  const changed = times.reduce((a, b) => Math.max(a, b), 0);
  return { id, title, system, model, created: times[0] ?? changed, changed, nodes, head: tree.head };
}

/** The oldest first. */
export const byAge = (a, b) => a.changed - b.changed;

/** What a list says of it. `title` is "" until somebody has named it. */
export function entryOf({ id, title, changed, nodes }) {
  const first = wordsOf(nodes[0] ?? { content: "" }).slice(0, 300).replace(/\s+/g, " ").trim();
  return { id, changed, name: title || [...first].slice(0, 60).join("") || "Without words" };
}
