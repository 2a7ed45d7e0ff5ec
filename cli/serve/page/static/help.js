/** What keys do, and what is special here. */

import { el, iconButton, style } from "./dom.js";

const KEYS = [
  ["Enter", "send; Shift+Enter: a new line"],
  ["Esc", "stop the answer; close what is open"],
  ["Ctrl+V", "text files, and pictures where the model takes them, go with the question"],
  ["Alt+\u2191, Alt+\u2193", "from message to message"],
  ["on a message", "C copy, E edit, R answer again, G go on, B branch here, \u2190 \u2192 other branches"],
  ["Ctrl+Shift+O", "new conversation"],
  ["Ctrl+Shift+H", "conversations"],
  ["Ctrl+Shift+F", "search conversations; Esc: show all again"],
  ["Ctrl+Shift+E", "tree of turns"],
  ["Ctrl+Shift+S", "settings"],
  ["F1", "this"],
];

let dialog = null;

export async function openHelp() {
  if (!dialog) await style("dialogs");
  dialog ??= document.body.appendChild(
    el("dialog", { class: "help", "aria-labelledby": "help-title" },
      el("header", {}, el("h2", { id: "help-title", text: "Keys" }), iconButton("close", "Close", () => dialog.close())),
      el("dl", {}, ...KEYS.map(([key, what]) => el("div", {}, el("dt", {}, el("kbd", { text: key })), el("dd", { text: what })))),
      el("p", { text: "Nothing is overwritten: another wording of a question, or another answer, begins a branch beside the old one. The tree of turns shows all of them, and how many tokens the model would have to read to go on there." }),
      el("p", { text: "Below each answer: tokens that were known already, tokens that were read, tokens that were written. Probabilities colour an answer's words by how surprising they were; click one to see what else it might have been, and to go on from there." })),
  );
  dialog.showModal();
}
