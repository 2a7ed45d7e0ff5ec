/** A long text without any markdown, in pieces that a browser need not lay out before they are seen. */

import { el } from "./dom.js";

const PIECE = 4_000; // characters; of what has both directions in it a browser takes the square

/** @returns {HTMLElement} with the text; a line is only broken where it is longer than a piece */
export function asItIs(text) {
  const frame = el("div", { class: "as-it-is" });
  for (let at = 0; at < text.length; ) {
    let end = Math.min(text.length, at + PIECE);
    if (end < text.length) {
      const line = text.lastIndexOf("\n", end);
      if (line > at) end = line + 1;
      else if (/[\ud800-\udbff]/.test(text[end - 1])) end -= 1;
    }
    frame.append(el("div", { dir: "auto", text: text.slice(at, end).replace(/\n$/, "") || "\n" }));
    at = end;
  }
  return frame;
}
