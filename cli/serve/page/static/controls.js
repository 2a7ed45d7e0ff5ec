/**
 * Characters that turn the direction of others around: a text can look like another one by them, a program, too.
 * Each is shown by its number, and ends with its place: what follows it stays where it is.
 */

import { el } from "./dom.js";

const TURNING = /([\u202a-\u202e\u2066-\u2069])/;
const MOST = 100; // that are shown by their number: thousands in one paragraph take a browser minutes to lay out

/** Makes the controls in all texts of `root` visible; those behind the first MOST as characters that cannot be shown. */
export function visibleControls(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    if (TURNING.test(walker.currentNode.data)) found.push(walker.currentNode);
  }
  let left = MOST;
  for (const node of found) {
    const fragment = withControls(node.data, left);
    left -= fragment.childElementCount;
    node.replaceWith(fragment);
  }
}

/** A text as nodes, its controls in elements of the class "control". Their text stays what it is, for who copies it. */
export function withControls(text, most = MOST) {
  const fragment = document.createDocumentFragment();
  for (const [index, part] of text.split(TURNING).entries()) {
    if (!part) continue;
    if (index % 2 === 0) fragment.append(part);
    else if (fragment.childElementCount === most) fragment.append("\ufffd");
    else fragment.append(el("span", {
      class: "control", "data-code": `U+${part.charCodeAt(0).toString(16).toUpperCase()}`, title: "a character that turns the direction of text around", text: part,
    }));
  }
  return fragment;
}
