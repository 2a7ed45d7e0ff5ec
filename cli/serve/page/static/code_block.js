/** A block of code: its language, a button that copies it, its colours. */

import { asItIs } from "./as_it_is.js";
import { el } from "./dom.js";
import { highlight } from "./highlight.js";

const MOST_COLOURED = 60_000; // characters
const COPIED_MILLISECONDS = 1_600;

/** language: as the model calls it, or ""; coloured: whether the block is whole, and may have colours */
export function codeBlock(text, language, { coloured }) {
  const name = language || "text";
  const code = el("code", {}, text.length > MOST_COLOURED ? asItIs(text) : coloured ? highlight(text, language) : text);
  const copy = el("button", { type: "button", class: "code-copy", "aria-label": `Copy this code (${name})`, text: "Copy", onclick: () => copyCode(copy, text, code) });
  return el("figure", { class: "code-block" },
    el("figcaption", { class: "code-head" }, el("span", { class: "code-language", text: name }), copy),
    el("pre", { tabindex: 0, dir: "ltr" }, code)); // a stop of Tab: it scrolls
}

/** Into the clipboard; where the browser gives none (no https, no localhost) the code is selected, to be copied. */
async function copyCode(button, text, code) {
  let told = "Copied";
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    getSelection().selectAllChildren(code);
    told = "Selected";
  }
  button.textContent = told;
  setTimeout(() => { button.textContent = "Copy"; }, COPIED_MILLISECONDS);
}
