/** The menu of models: which one answers in this conversation, and what going on with another would cost. */

import { prices } from "./answers.js";
import { byId, count, el, tokens } from "./dom.js";
import { entryOf, look, model, usedBy } from "./model.js";

const FRESH = 1000; // milliseconds from look to look

/** Fills the menu, which is open; doing: {choose(id), path(), asked(): see `prices`, news(): of models} */
export async function fillMenu(doing) {
  const list = byId("models");
  const path = doing.path();
  const known = new Map(); // id and state -> cost
  const notes = new Map(model.all.map(({ id }) => [id, el("span", { class: "note" })]));
  const tell = () => notes.forEach((note, id) => { note.textContent = told(entryOf(id), path, known); });
  list.replaceChildren(...model.all.map(({ id, parent }) =>
    el("button", { type: "button", class: parent && "adapter", "aria-current": id === model.id && "true", onclick: () => doing.choose(id) }, id, notes.get(id))));
  tell();
  list.style.left = `${Math.max(8, byId("model").getBoundingClientRect().right - list.offsetWidth)}px`;
  (list.querySelector("[aria-current]") ?? list.firstChild).focus();
  const asking = new AbortController();
  list.addEventListener("toggle", () => asking.abort(), { once: true });
  for (const { signal } = asking; !signal.aborted; await new Promise((done) => setTimeout(done, FRESH))) {
    try {
      await look();
      doing.news();
      tell();
      for (const { id, state } of path.length ? model.all : []) {
        if (!known.has(id + state)) known.set(id + state, (await prices([path], doing.asked(), { model: id, signal }))[0]);
        tell();
      }
    } catch {
      // what is known stays
    }
  }
}

/** The state of a model, and what it means for a conversation. */
function told({ id, state, status, architecture } = {}, path, known) {
  const { error, read, tokens: all, on_disk: kept } = known.get(id + state) ?? {};
  const n = state === "asleep" && usedBy(path);
  let more = status?.why ?? error;
  if (read >= 0) more = `${count(read)} of ${tokens(all)} are read`;
  else if (n) more = kept && path.some((node) => node.model === id) ? "what it has read comes from disk" : `about ${tokens(n)} are read`;
  return [architecture?.input_modalities.includes("image") && "takes pictures", state ?? "gone", more].filter(Boolean).join(" \u00b7 ");
}

byId("models").addEventListener("keydown", (event) => {
  const to = { ArrowDown: "nextSibling", ArrowUp: "previousSibling" }[event.key];
  if (!to) return;
  event.preventDefault();
  document.activeElement[to]?.focus();
});
