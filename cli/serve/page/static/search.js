/** Search over the stored conversations: all words in one message or in the title, in any case, with or without accents. */

import { el } from "./dom.js";
import { textOf } from "./tree.js";

const [BEFORE, AFTER] = [30, 120]; // characters of an excerpt around its match
const MARKS = "[\u0300-\u036f]"; // accents of decomposed letters

/** Finds a word in decomposed text. */
function pattern(word) {
  const letters = word.normalize("NFD").replace(new RegExp(MARKS, "g"), "");
  return new RegExp([...letters].map((each) => `${each.replace(/[\\^$.*+?()[\]{}|/]/, "\\$&")}${MARKS}*`).join(""), "iu");
}

export class Search {
  /** @param {function(string): void} say shows how much was found; "": nothing is searched */
  constructor(field, list, store, say) {
    Object.assign(this, { field, list, say });
    this.texts = new Map(); // id of a conversation -> [{at: id of a message, null: the title; text: decomposed}]
    this.frame = 0;
    this.#begin(store);
  }

  /** Reads all conversations; only then anything is found. */
  async #begin(store) {
    await (await store).each((record) => this.texts.has(record.id) || this.put(record)); // unless a newer one is there
    this.field.addEventListener("input", () => this.#show());
    this.field.closest(".panel").addEventListener("keydown", (event) => this.#key(event));
    this.#show();
  }

  /** Takes a stored conversation, or its newer version. */
  put({ id, title, nodes }) {
    const texts = [...nodes.map((node) => ({ at: node.id, text: textOf(node) })), { at: null, text: title }];
    this.texts.set(id, texts.map(({ at, text }) => ({ at, text: text.normalize("NFD") })));
    if (this.list.found) this.frame ||= requestAnimationFrame(() => this.#show());
  }

  /** Shows the conversations that have the words of the field. */
  #show() {
    this.frame = 0;
    const patterns = this.field.value.split(/\s+/).filter(Boolean).map(pattern);
    const found = patterns.length ? new Map() : null;
    for (const [id, row] of this.list.rows) {
      const hit = found && this.texts.get(id)?.find(({ text }) => patterns.every((each) => each.test(text)));
      if (hit) found.set(id, { at: hit.at, excerpt: hit.at && excerpt(hit.text, patterns[0]) });
      row.hidden = Boolean(found && !hit);
      row.querySelector(".excerpt")?.remove();
      row.querySelector(".open")?.append(found?.get(id)?.excerpt ?? "");
    }
    const said = !found ? "" : found.size ? `Found in ${found.size} of ${this.list.rows.size} conversations.` : "No conversation has these words.";
    if (found || this.list.found) this.say(said); // not over another note
    this.list.found = found;
  }

  #key(event) {
    const { field } = this;
    const first = () => this.list.element.querySelector("li:not([hidden]) .open");
    if (event.key === "Escape" && field.value) {
      field.value = "";
      field.focus();
      this.#show();
    } else if (event.target !== field || event.isComposing) return;
    else if (event.key === "ArrowDown") first()?.focus();
    else if (event.key === "Enter" && field.value) first()?.click();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

function excerpt(text, wanted) {
  const { index, 0: match } = wanted.exec(text);
  const end = index + match.length;
  const before = text.slice(Math.max(0, index - BEFORE), index);
  return el("span", { class: "excerpt", dir: "auto" },
    (index > BEFORE ? before.replace(/^\S*/, "\u2026") : before).normalize(), el("mark", { text: match.normalize() }), text.slice(end, end + AFTER).normalize());
}
