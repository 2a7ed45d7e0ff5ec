/** A markdown text that grows, drawn without jumps: blocks that are certain stay as they are. */

import { certain } from "./blocks.js";
import { el } from "./dom.js";
import { renderMarkdown } from "./markdown.js";

export class GrowingText {
  constructor() {
    this.tail = el("div", { class: "tail" });
    this.element = el("div", { class: "prose growing" }, this.tail);
    this.done = 0; // characters that are drawn for good
    this.text = "";
    this.frame = 0;
    this.rest = 0; // milliseconds between two drawings: several times what one takes
  }

  /** Shows `text`, which begins as the last one did, with the next frame. */
  show(text) {
    this.text = text;
    this.frame ||= requestAnimationFrame((now) => this.#draw(now));
  }

  #draw(now) {
    this.frame = 0;
    if (now < this.rest) {
      this.show(this.text);
      return;
    }
    const began = performance.now();
    const end = certain(this.text, this.done);
    if (end > this.done) {
      this.tail.before(renderMarkdown(this.text.slice(this.done, end), { complete: true }));
      this.done = end;
    }
    this.tail.replaceChildren(renderMarkdown(this.text.slice(this.done), { complete: false }));
    this.rest = now + 4 * (performance.now() - began);
  }

  /** Nothing more is drawn. */
  close() {
    cancelAnimationFrame(this.frame);
  }
}
