/** One message as it is seen: text, thoughts, calls of tools, what it took, and what can be done with it. */

import { byId, count, el, icon, iconButton, style, tokens } from "./dom.js";
import { figures, seenIn } from "./figures.js";
import { GrowingText } from "./growing.js";
import { renderMarkdown } from "./markdown.js";
import { callCards, fileCards, resultCard } from "./calls_view.js";
import { named } from "./model.js";
import { thumbs } from "./thumbs.js";

const WHO = { user: "You", tool: "Result" };
const ENDS = { length: "It was cut off: no room for more tokens.", stopped: "Stopped." };

/** Draws what comes into view; far away a message is its plain text. */
const near = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) target.view.enrich();
  },
  { root: byId("scroller"), rootMargin: "1200px 0px" },
);

let styled = null;
const tokenStyle = () => (styled ??= style("probabilities"));

export class MessageView {
  /**
   * @param {Object} node of the tree
   * @param {Object} doing what can be done: {edit, regenerate, branch, remove, proceed, go, alternative, result, copy, settings}
   */
  constructor(node, doing) {
    this.node = node;
    this.doing = doing;
    this.growing = null;
    this.drawn = null; // what the body shows: "plain", "growing", "rich", "tokens"
    this.head = el("header", { class: "head" });
    this.thoughts = null;
    this.body = el("div", { class: "body" });
    this.files = [...(node.pictures.length ? [el("div", { class: "thumbs" }, ...thumbs(node.pictures))] : []), ...fileCards(node.files)];
    this.more = el("div", { class: "more" });
    this.foot = el("footer", { class: "foot" });
    this.element = el(
      "article",
      { class: `message ${node.role}`, id: `m-${node.id}`, tabindex: "-1", "aria-labelledby": `h-${node.id}` },
      this.head, this.body, this.more, this.foot,
    );
    this.element.view = this;
    near.observe(this.element);
  }

  /** It is no longer shown. */
  close() {
    near.unobserve(this.element);
    this.growing?.close();
  }

  /**
   * Shows the node as it is now.
   * @param {Object} state {siblings: [ids], running: what it waits for or undefined, probabilities: bool, results: for calls}
   */
  update(state) {
    this.state = state;
    const { running } = state;
    this.element.classList.toggle("running", Boolean(running));
    this.element.setAttribute("aria-busy", String(Boolean(running)));
    this.#head(state);
    this.#thoughts(running);
    this.#text(running);
    if (running) this.#waiting(running);
    else this.#ended(state);
    this.#foot(running);
  }

  // --- text ---
  #text(running) {
    const { node } = this;
    if (running) {
      if (this.drawn !== "growing") {
        this.growing = new GrowingText();
        this.body.replaceChildren(this.growing.element);
        this.drawn = "growing";
      }
      this.growing.show(node.content);
      return;
    }
    const was = this.drawn;
    this.growing?.close();
    this.growing = null;
    this.drawn = null;
    if (was === "growing" || was === "rich" || was === "tokens") this.enrich();
    else {
      this.drawn = "plain";
      this.#plain();
    }
  }

  #plain() {
    this.body.replaceChildren(...this.files, el("div", { class: "plain", text: this.node.content }));
  }

  /** Draws the text in full. */
  enrich() {
    const { node, state } = this;
    const wanted = state.probabilities && node.logprobs && node.role === "assistant" ? "tokens" : "rich";
    if (state.running || this.drawn === wanted) return;
    this.drawn = wanted;
    if (node.role === "user") this.#plain();
    else if (node.role === "tool") this.body.replaceChildren(resultCard(node));
    else if (wanted === "tokens") this.#tokens();
    else this.body.replaceChildren(el("div", { class: "prose" }, renderMarkdown(node.content, { complete: true })));
  }

  async #tokens() {
    const { node } = this;
    const [{ colouredTokens }, { textTokens }] = await Promise.all([import("./probabilities.js"), import("./alternatives.js"), tokenStyle()]);
    if (this.drawn !== "tokens") return;
    const { from, list } = textTokens(node);
    const onContinue = (index, other) => this.doing.alternative(node, from + index, other);
    this.body.replaceChildren(el("div", { class: "tokens" }, colouredTokens(list, { onContinue })));
  }

  // --- what stands above ---
  #head({ siblings }) {
    const { node, doing } = this;
    const at = siblings.indexOf(node.id);
    const key = `${siblings.length}:${at}`;
    if (this.headKey === key) return;
    this.headKey = key;
    const title = el("h2", { id: `h-${node.id}`, text: WHO[node.role] });
    if (node.role === "assistant") named(title, node.model);
    this.head.replaceChildren(title);
    if (siblings.length < 2) return;
    const to = (step) => () => doing.go(siblings[at + step]);
    this.head.append(
      el("nav", { class: "siblings", "aria-label": "Branches here" },
        iconButton("left", "Branch before", to(-1), { disabled: at === 0, "data-do": "before" }),
        el("span", { text: `${at + 1} / ${siblings.length}` }),
        iconButton("right", "Branch after", to(1), { disabled: at === siblings.length - 1, "data-do": "after" })),
    );
  }

  #thoughts(running) {
    const { reasoning, content } = this.node;
    if (!reasoning) return;
    if (this.thoughts === null) {
      this.summary = el("span", {});
      this.thoughtText = el("div", { class: "thought-text" });
      this.thoughts = el("details", { class: "thoughts" }, el("summary", {}, icon("bulb"), this.summary), this.thoughtText);
      this.body.before(this.thoughts);
    }
    const thinks = running && !content;
    const n = this.node.usage?.completion_tokens_details?.reasoning_tokens;
    this.summary.textContent = thinks ? "Thinking\u2026" : n ? `Thoughts \u00b7 ${tokens(n)}` : "Thoughts";
    this.thoughts.classList.toggle("thinks", Boolean(thinks));
    const shown = this.thoughtText.textContent;
    if (reasoning.startsWith(shown)) this.thoughtText.append(reasoning.slice(shown.length));
    else this.thoughtText.textContent = reasoning;
  }

  // --- what stands below ---
  #waiting({ since, progress, loads }) {
    const { node } = this;
    if (node.content || node.reasoning || node.toolCalls.length) {
      this.more.replaceChildren(...callCards(node, { running: true }));
      this.progress = null;
      return;
    }
    if (!this.progress) {
      this.progress = { bar: el("progress", { max: 1, "aria-label": "The prompt is read" }), text: el("span", {}) };
      this.more.replaceChildren(el("div", { class: "reading" }, this.progress.bar, this.progress.text));
    }
    const seconds = Math.floor((performance.now() - since) / 1000);
    const late = seconds >= 3 ? ` \u00b7 ${seconds} s` : "";
    if (progress && progress.total > 0) {
      this.progress.bar.value = progress.processed / progress.total;
      const known = progress.cache ? `, ${count(progress.cache)} of them known` : "";
      this.progress.text.textContent = `Read ${count(progress.processed)} of ${tokens(progress.total)}${known}${late}`;
    } else {
      this.progress.text.textContent = `${loads ? `${loads} is being loaded` : "Waiting for the server"}${late}`;
    }
  }

  #ended({ results }) {
    const { node, doing } = this;
    this.progress = null;
    const parts = callCards(node, { running: false, results, onResult: (given) => doing.result(node, given) });
    if (node.error) {
      parts.push(
        el("div", { class: "trouble", role: "alert" },
          el("p", { text: node.error }),
          el("div", { class: "choices" },
            iconButton("retry", "Try again", () => doing.retry(node), { wide: true }),
            node.status === 401 ? iconButton("settings", "Enter the key", () => doing.key(node), { wide: true }) : null,
            doing.isSetting(node.errorParam) ? iconButton("settings", "Open the setting", () => doing.settings(node), { wide: true }) : null)),
      );
    } else if (ENDS[node.finish]) {
      parts.push(el("p", { class: "note", text: ENDS[node.finish] }));
    } else if (node.role === "assistant" && !node.content && !node.toolCalls.length) {
      parts.push(el("p", { class: "note", text: node.reasoning ? "It ended after its thoughts, without an answer." : "The answer is empty." }));
    }
    this.more.replaceChildren(...parts);
  }

  #foot(running) {
    const { node, doing } = this;
    if (this.actions === undefined) {
      this.bar = el("div", { class: "bar" });
      this.actions = el("div", { class: "actions" });
      this.foot.append(this.bar, this.actions);
    }
    if (node.timings && this.told !== node.timings) {
      this.told = node.timings;
      this.bar.replaceChildren(figures(node.timings, node.usage));
    }
    const seen = seenIn(node.pictures);
    if (seen) this.bar.replaceChildren(el("span", { class: "figures", text: seen }));
    const can = running ? "running" : `${node.finish} ${node.error}`;
    if (this.can === can) return;
    this.can = can;
    const button = (name, label, run, key) =>
      iconButton(name, label, (event) => run(node, event.currentTarget), { "data-do": key, tabindex: "-1" });
    const cut = node.content && !node.toolCalls.length && ["length", "stopped", "error"].includes(node.finish);
    this.actions.replaceChildren(
      ...(running
        ? []
        : [
            button("copy", "Copy", doing.copy, "copy"),
            node.role === "user" && button("edit", "Edit: a new branch", doing.edit, "edit"),
            button("retry", "Answer again: a new branch", doing.regenerate, "regenerate"),
            cut && button("go", "Go on where it ended", doing.proceed, "proceed"),
            node.role !== "user" && button("branch", "Branch here: what you write next follows this", doing.branch, "branch"),
            button("remove", "Remove this and all that follows", doing.remove, "remove"),
          ].filter(Boolean)),
    );
  }
}
