/** Folded parts of a message: files; calls of tools, and their results, which the reader gives: the server runs no tool. */

import { withControls } from "./controls.js";
import { count, el, icon } from "./dom.js";

/** Name and size of a file. */
export function fileLabel({ name, text }) {
  const bytes = new Blob([text]).size;
  return `${name} \u00b7 ${bytes < 1000 ? `${bytes} bytes` : `${count(bytes / 1000)} kB`}`;
}

const card = (open, kind, label, text) => el("details", { class: "call", open }, el("summary", {}, icon(kind), label), el("pre", {}, el("code", {}, text)));

/** A card for each file. */
export const fileCards = (files) => files.map((file) => card(false, "attach", el("span", { dir: "auto", text: fileLabel(file) }), withControls(file.text)));

/** JSON with indents; as it is where it is not (yet) JSON. */
function readable(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/**
 * A card for each call of an answer, and a form for results that are missing.
 * @param {Object} options {running, results: ids of calls that have one, onResult: gets [{id, content}]}
 */
export function callCards(node, { running, results = new Set(), onResult }) {
  const cards = node.toolCalls.filter(Boolean).map((call) =>
    card(running, "tool", el("span", {}, "Calls ", el("code", { text: call.name })), readable(call.arguments)));
  const missing = node.toolCalls.filter((call) => !results.has(call.id));
  if (running || !cards.length || !missing.length || node.finish !== "tool_calls") return cards;
  return [...cards, form(missing, onResult)];
}

function form(missing, onResult) {
  const fields = missing.map((call, index) => {
    const area = el("textarea", { rows: 2, id: `result-${call.id}-${index}`, spellcheck: "false" });
    return { call, area, field: el("div", { class: "field" }, el("label", { for: area.id }, "Result of ", el("code", { text: call.name })), area) };
  });
  const submit = (event) => {
    event.preventDefault();
    onResult(fields.map(({ call, area }) => ({ id: call.id, content: area.value })));
  };
  return el("form", { class: "results", onsubmit: submit },
    ...fields.map(({ field }) => field),
    el("button", { class: "button strong", type: "submit" }, icon("send"), el("span", { text: "Send results" })));
}

/** What a tool gave. */
export function resultCard(node) {
  return el("pre", { class: "result" }, el("code", { text: readable(node.content) }));
}
