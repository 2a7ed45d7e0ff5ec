/** The tree of turns, drawn: where the branches are, which one is shown, and what going to each would cost. */

import { prices } from "./answers.js";
import { byId, count, el, style, svg, tokens } from "./dom.js";
import { model } from "./model.js";
import { thumbs } from "./thumbs.js";
import { wordsOf } from "./tree.js";

const STEP = 16; // pixels from one column to the next
const ROW = 34; // height of a row
const MOST = 64; // branches whose costs are asked for
const LETTER = { user: "You", assistant: "Answer", tool: "Result" };

export class TreeView {
  /** @param {Object} doing {go(id): shows the branch of a node; asked(): {system, settings} of requests} */
  static async of(doing) {
    await style("tree");
    return new TreeView(doing);
  }

  constructor(doing) {
    this.doing = doing;
    this.panel = byId("tree");
    this.note = byId("tree-note");
    this.view = byId("tree-view");
    this.list = el("div", { role: "tree", "aria-label": "Turns", class: "turns" });
    this.view.append(this.list);
    this.list.addEventListener("click", ({ target }) => target.closest(".thumb") || this.#chosen(target.closest(".turn")));
    this.list.addEventListener("keydown", (event) => this.#key(event));
    this.known = new Map(); // id of a branch's first node -> its cost
    this.asking = null;
  }

  get isOpen() {
    return !this.panel.hidden;
  }

  /** Draws it in the panel that has been opened, and takes the focus. */
  open(tree) {
    this.show(tree);
    this.list.querySelector('[tabindex="0"]')?.focus();
  }

  /** Draws the tree as it is now, and asks what its branches cost. */
  show(tree) {
    this.tree = tree;
    if (!this.isOpen) return;
    const onPath = new Set(tree.path().map((node) => node.id));
    const rows = [];
    const branches = [];
    for (const row of laidOut(tree)) {
      if (row.siblings > 1) branches.push(row.node);
      rows.push(this.#row(row, onPath, row.node.id === tree.head));
    }
    const focused = document.activeElement?.closest?.(".turn")?.dataset.id;
    this.list.replaceChildren(...rows);
    const stop = rows.find((row) => row.dataset.id === focused) ?? rows.find((row) => row.hasAttribute("aria-current")) ?? rows[0];
    if (stop) stop.tabIndex = 0;
    if (focused) stop?.focus();
    this.note.textContent = branches.length
      ? "Each branch says how many tokens the model would have to read to go on there."
      : "One branch so far: edit a question, or ask for another answer, to make more.";
    this.#ask(branches.slice(-MOST));
  }

  #row({ node, level, lines, siblings }, onPath, isHead) {
    const text = (wordsOf(node) || node.reasoning || node.toolCalls.map((call) => call?.name).join(", ") || "\u2026").slice(0, 120);
    const cost = el("span", { class: "cost" });
    if (siblings > 1) this.#tell(cost, this.known.get(node.id));
    const on = onPath.has(node.id);
    const small = thumbs(node.pictures);
    for (const each of small) each.tabIndex = -1; // keys find them in the message
    return el("div",
      { class: `turn ${node.role}${on ? " on" : ""}`, role: "treeitem", tabindex: "-1", "aria-level": level + 1, "aria-current": isHead ? "true" : null,
        "aria-label": `${LETTER[node.role]}: ${text.slice(0, 80)}${on ? ", on the branch that is shown" : ""}`, "data-id": node.id },
      drawing(level, lines, on), ...small, el("span", { class: "turn-text", text: text.replace(/[#*`>|\s]+/g, " ").trim() }), siblings > 1 ? cost : null);
  }

  // --- costs ---
  async #ask(branches) {
    this.asking?.abort();
    if (!branches.length) return;
    const asking = (this.asking = new AbortController());
    const paths = branches.map((node) => this.tree.path(this.tree.leaf(node.id)));
    try {
      const found = await prices(paths, this.doing.asked(), { model: model.id, signal: asking.signal });
      for (const [index, cost] of found.entries()) {
        this.known.set(branches[index].id, cost);
        const place = this.list.querySelector(`[data-id="${branches[index].id}"] .cost`);
        if (place) this.#tell(place, cost);
      }
    } catch (error) {
      if (error.name !== "AbortError") this.note.textContent = `What branches cost is not known: ${error.message}`;
    }
  }

  #tell(place, cost) {
    if (!cost) return;
    place.textContent = cost.tokens === undefined ? "?" : cost.read ? `+${count(cost.read)}` : "0";
    place.title = cost.error ?? (cost.unknown ? `The model is ${cost.unknown}` : `${tokens(cost.read)} to read, ${count(cost.reused)} of ${count(cost.tokens)} known`);
    place.classList.toggle("free", cost.read * 10 <= cost.tokens);
    place.parentElement?.setAttribute("aria-description", place.title);
  }

  // --- the reader ---
  #chosen(row) {
    if (row) this.doing.go(row.dataset.id);
  }

  #key(event) {
    const row = event.target.closest(".turn");
    if (!row) return;
    const parent = () => this.list.querySelector(`[data-id="${this.tree.get(row.dataset.id).parent}"]`);
    const child = () => this.list.querySelector(`[data-id="${this.tree.children(row.dataset.id)[0]?.id}"]`);
    const to = {
      ArrowDown: () => row.nextElementSibling, ArrowUp: () => row.previousElementSibling, ArrowLeft: parent, ArrowRight: child,
      Home: () => this.list.firstElementChild, End: () => this.list.lastElementChild,
    }[event.key];
    if (event.key === "Enter" || event.key === " ") this.#chosen(row);
    else if (!to) return;
    event.preventDefault();
    const next = to?.();
    if (!next) return;
    row.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}

/**
 * The rows of a tree from top to bottom. A message stands below the one before it; only where there are several, each
 * begins a column of its own.
 * @returns {{node, level, siblings, lines: {x, from, to}[]}[]} lines: "|" in which columns, from where to where of a row
 */
function laidOut(tree) {
  const rows = [];
  const open = [];
  const push = (parent, level, through) => {
    const children = tree.children(parent);
    const many = children.length > 1;
    for (let at = children.length - 1; at >= 0; at -= 1) {
      const isLast = at === children.length - 1;
      open.push({ node: children[at], level: many ? level + 1 : level, siblings: children.length, many, isLast, through });
    }
  };
  push(null, 0, []);
  while (open.length) {
    const { node, level, siblings, many, isLast, through } = open.pop();
    const below = tree.children(node.id).length;
    const lines = through.map((x) => ({ x, from: 0, to: 1 }));
    const isFirst = node.parent === null;
    if (many) {
      if (!isFirst || rows.length) lines.push({ x: level - 1, from: 0, to: isLast ? 0.5 : 1 });
      else if (!isLast) lines.push({ x: level - 1, from: 0.5, to: 1 });
      lines.push({ x: level - 1, across: true });
    } else if (!isFirst) lines.push({ x: level, from: 0, to: 0.5 });
    if (below) lines.push({ x: level, from: 0.5, to: 1 });
    rows.push({ node, level, siblings, lines });
    push(node.id, level, many && !isLast ? [...through, level - 1] : through);
  }
  return rows;
}

function drawing(level, lines, on) {
  const middle = (x) => x * STEP + STEP / 2;
  const path = lines
    .map(({ x, from, to, across }) =>
      across ? `M${middle(x)} ${ROW / 2}H${middle(level)}` : `M${middle(x)} ${from * ROW}V${to * ROW}`)
    .join("");
  const width = (level + 1) * STEP;
  return svg("svg", { class: "lanes", width, height: ROW, viewBox: `0 0 ${width} ${ROW}`, "aria-hidden": "true" },
    svg("path", { d: path }), svg("circle", { cx: middle(level), cy: ROW / 2, r: on ? 5 : 4 }));
}
