/** The list of conversations: the newest first, each with its name and age; renamed and removed in its row. */

import { el, iconButton } from "./dom.js";

/** The hour of today, the day of other days. */
function when(ms) {
  const [date, now] = [new Date(ms), new Date()];
  if (date.toDateString() === now.toDateString()) return date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  return date.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: date.getFullYear() === now.getFullYear() ? undefined : "numeric" });
}

export class HistoryList {
  /** @param {Object} doing {open(id), rename(id, title), remove(id)}; removing has been confirmed then */
  constructor(element, doing) {
    this.element = element;
    this.doing = doing;
    this.entries = new Map(); // id -> {id, name, changed}
    this.rows = new Map();
    this.current = null;
    this.found = null; // by a search: id -> {at, excerpt}; other rows are hidden
    element.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Marks the one that is shown. */
  select(id) {
    this.current = id;
    for (const [each, row] of this.rows) row.querySelector(".open")?.[each === id ? "setAttribute" : "removeAttribute"]("aria-current", "true");
  }

  /** Asks in its row whether one shall go. */
  ask(id) {
    const back = () => this.#draw(id).querySelector('[data-do="remove"]').focus();
    const button = (name, text, onclick) => el("button", { type: "button", class: name, text, onclick });
    const no = button("button", "No", back);
    this.rows.get(id).replaceChildren(
      el("div", { class: "sure", role: "group", "aria-label": `Remove ${this.entries.get(id).name}?`, onkeydown: (event) => escape(event, back) },
        el("span", { text: "Remove?" }), button("button danger", "Yes", () => this.doing.remove(id)), no));
    no.focus();
  }

  /** Takes a row away; the focus goes to the next one. Whether there is one. */
  take(id) {
    const row = this.rows.get(id);
    const next = beside(row, "next") ?? beside(row, "previous");
    row.remove();
    this.rows.delete(id);
    this.entries.delete(id);
    next?.querySelector("button, input").focus();
    return Boolean(next);
  }

  /** Puts an entry where it belongs: the newest first. */
  place(entry) {
    const { id, changed, name } = entry;
    const was = this.entries.get(id);
    this.entries.set(id, entry);
    if (!was) this.rows.set(id, el("li", { "data-id": id }));
    const row = this.rows.get(id);
    if (!was || was.changed !== changed) {
      const before = [...this.element.children].find((each) => each !== row && this.entries.get(each.dataset.id).changed <= changed) ?? null;
      if (!was || row.nextElementSibling !== before) this.element.insertBefore(row, before);
    }
    if (!was || (row.querySelector(".open") && (was.name !== name || was.changed !== changed))) this.#draw(id);
  }

  /** A row as it is when nothing is asked in it. */
  #draw(id) {
    const { name, changed } = this.entries.get(id);
    const row = this.rows.get(id);
    const held = row.contains(document.activeElement);
    const opens = ({ detail }) => detail < 2 && this.doing.open(id); // not again by a double click
    const open = el("button",
      { type: "button", class: "open", title: name, "aria-current": id === this.current && "true", onclick: opens, ondblclick: () => this.#edit(id) },
      el("span", { class: "name", dir: "auto", text: name }),
      el("time", { datetime: new Date(changed).toISOString(), text: when(changed) }),
      this.found?.get(id)?.excerpt);
    row.replaceChildren(open,
      iconButton("edit", `Rename ${name}`, () => this.#edit(id), { "data-do": "rename" }),
      iconButton("remove", `Remove ${name}`, () => this.ask(id), { "data-do": "remove" }));
    if (held) open.focus();
    return row;
  }

  /** Another name; an empty one: the first question again. */
  #edit(id) {
    const { name } = this.entries.get(id);
    let open = true;
    const end = (keep) => {
      if (!open) return;
      open = false;
      this.#draw(id);
      if (keep && input.value !== name) this.doing.rename(id, input.value);
    };
    const submit = (event) => {
      event.preventDefault();
      end(true);
    };
    const input = el("input", { "aria-label": "Name of the conversation", maxlength: 200, value: name, onblur: () => end(true) });
    input.addEventListener("keydown", (event) => escape(event, () => end(false)));
    this.rows.get(id).replaceChildren(el("form", { onsubmit: submit }, input));
    input.select();
  }

  #key(event) {
    const row = event.target.closest("li");
    if (!row || !event.target.classList.contains("open")) return;
    const act = {
      ArrowUp: () => beside(row, "previous")?.querySelector("button").focus(),
      ArrowDown: () => beside(row, "next")?.querySelector("button").focus(),
      F2: () => this.#edit(row.dataset.id),
      Delete: () => this.ask(row.dataset.id),
    }[event.altKey || event.ctrlKey ? "" : event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}

/** The next or previous row that is shown. */
function beside(row, way) {
  do row = row[`${way}ElementSibling`];
  while (row?.hidden);
  return row;
}

/** Escape leaves what is asked, and nothing else. */
function escape(event, back) {
  if (event.key !== "Escape") return;
  event.stopPropagation();
  event.preventDefault();
  back();
}
