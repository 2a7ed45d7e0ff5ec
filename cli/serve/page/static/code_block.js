/** A block of code: its language, a button that copies it, its colours. */

import { asItIs } from "./as_it_is.js";
import { highlight } from "./highlight.js";

const MOST_COLOURED = 60_000; // characters
const COPIED_MILLISECONDS = 1_600;

/**
 * @param {string} text the code
 * @param {string} language as the model calls it, or ""
 * @param {{coloured: boolean}} options coloured: whether the block is whole, and may have colours
 * @returns {HTMLElement}
 */
export function codeBlock(text, language, { coloured }) {
  const figure = element("figure", "code-block");
  const head = element("figcaption", "code-head");
  const name = element("span", "code-language", language || "text");
  const copy = element("button", "code-copy", "Copy");
  copy.type = "button";
  copy.setAttribute("aria-label", `Copy this code (${language || "text"})`);
  copy.addEventListener("click", () => copyCode(copy, text, code));
  head.append(name, copy);
  const pre = document.createElement("pre");
  pre.tabIndex = 0; // it scrolls
  pre.dir = "ltr";
  const code = document.createElement("code");
  if (text.length > MOST_COLOURED) code.append(asItIs(text));
  else code.append(coloured ? highlight(text, language) : text);
  pre.append(code);
  figure.append(head, pre);
  return figure;
}

function element(tag, className, text = "") {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
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
