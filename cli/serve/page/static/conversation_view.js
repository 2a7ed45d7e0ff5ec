/** The messages of the path that is shown, and where the reader is in them. */

import { byId } from "./dom.js";
import { MessageView } from "./message_view.js";

const NEAR_END = 60; // pixels: who is this near goes along with what is written

export class ConversationView {
  /** @param {Object} doing see MessageView; also `state(node)`: what it waits for, `probabilities()`: whether they are shown */
  constructor(doing) {
    this.doing = doing;
    this.views = new Map();
    this.list = byId("messages");
    this.scroller = byId("scroller");
    this.toEnd = byId("to-end");
    this.follows = true;
    this.top = 0;
    this.scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.toEnd.addEventListener("click", () => this.end());
    this.list.addEventListener("focusin", (event) => this.activate(event.target.closest(".message")));
    new ResizeObserver(() => this.follows && this.#down()).observe(this.list);
  }

  /** Shows the path of a tree; messages that are shown already stay. */
  show(tree) {
    const path = tree.path();
    const wanted = new Set(path.map((node) => node.id));
    for (const [id, view] of this.views) {
      if (wanted.has(id) && view.node === tree.get(id)) continue;
      view.close();
      view.element.remove();
      this.views.delete(id);
    }
    const results = new Set(path.map((node) => node.toolCallId));
    let before = null;
    for (const node of path) {
      let view = this.views.get(node.id);
      if (!view) {
        view = new MessageView(node, this.doing);
        this.views.set(node.id, view);
      }
      const next = before ? before.nextSibling : this.list.firstChild;
      if (next !== view.element) this.list.insertBefore(view.element, next);
      view.update(this.#state(tree, node, results));
      before = view.element;
    }
    this.tree = tree;
    this.activate(before);
  }

  /** Shows a node as it is now. */
  update(node) {
    const view = this.views.get(node.id);
    if (!view) return;
    const results = new Set(this.tree.path().map((each) => each.toolCallId));
    view.update(this.#state(this.tree, node, results));
  }

  #state(tree, node, results) {
    return {
      siblings: tree.siblings(node.id).map((each) => each.id),
      running: this.doing.state(node),
      probabilities: this.doing.probabilities(),
      results,
    };
  }

  // --- which one keys are for ---
  /** Makes the buttons of one message, and only its own, stops of the Tab key. */
  activate(element) {
    if (!element || element === this.active) return;
    for (const each of this.active?.querySelectorAll("[data-do]") ?? []) each.tabIndex = -1;
    if (this.active) this.active.tabIndex = -1;
    this.active = element;
    element.tabIndex = 0;
    for (const each of element.querySelectorAll("[data-do]")) each.tabIndex = 0;
  }

  /** Focus on the message so many after the active one. */
  step(by) {
    const all = [...this.list.children];
    const at = document.activeElement?.closest(".message") ? all.indexOf(this.active) + by : all.length - 1;
    const to = all[Math.min(Math.max(at, 0), all.length - 1)];
    to?.focus();
    to?.scrollIntoView({ block: "nearest" });
  }

  /** Focus on a message, which need not be at the end. */
  focus(id) {
    this.follows = false;
    const view = this.views.get(id);
    view?.element.focus({ preventScroll: true });
    view?.element.scrollIntoView({ block: "nearest" });
  }

  /** A question becomes a form; what it is sent as is a branch of its own. */
  async edit(node, onSend) {
    const { editForm } = await import("./edit_form.js");
    editForm(this.views.get(node.id), onSend);
  }

  // --- scrolling ---
  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    const atEnd = scrollHeight - scrollTop - clientHeight < NEAR_END;
    if (atEnd) this.follows = true;
    else if (scrollTop < this.top) this.follows = false; // up: by the reader
    this.top = scrollTop;
    this.toEnd.hidden = atEnd;
  }

  #down() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  /** To the end, and along with what is written. */
  end() {
    this.follows = true;
    this.#down();
  }
}
