/**
 * Text of a model as elements. It is hostile until shown otherwise: whatever it says, nothing of it runs, nothing is
 * loaded from elsewhere, and it is drawn in a bounded time.
 *
 * Three things see to that, each of which would do alone for what runs or loads: marked is given renderers that write
 * only what is listed here, DOMPurify removes the rest, and the page's content policy forbids it.
 */

import { Lexer, Marked, Renderer } from "./vendor/marked.esm.js";
import "./vendor/purify.min.js"; // a script: sets globalThis.DOMPurify
import { asItIs } from "./as_it_is.js";
import { codeBlock } from "./code_block.js";
import { visibleControls } from "./controls.js";
import { el } from "./dom.js";
import { coded, escaped, math } from "./math.js";

const MOST_TEXT = 200_000; // characters that are read as markdown; longer texts are shown as they are
const MOST_INLINE = 16_000; // of one paragraph: some of marked's searches take the square of it
const MOST_DEPTH = 20; // lists in quotes in lists
const MOST_CELLS = 4_000; // of all tables; those beyond are shown as text
const MOST_ITEMS = 2_000; // of all lists, likewise
const MOST_TAGS = 300; // that are written as HTML
const MOST_MILLISECONDS = 400; // afterwards what is left is shown as it is

// what a model may write as HTML, without attributes; other tags are shown as text
const BARE = new Set("b br del details em hr i kbd mark s small strong sub summary sup u wbr".split(" "));
const VOID = new Set(["br", "hr", "wbr"]);
const TAGS = [...BARE, ..."a blockquote code h1 h2 h3 h4 h5 h6 img li ol p pre table tbody td th thead tr ul".split(" ")];
const ATTRIBUTES = ["align", "alt", "class", "href", "src", "start", "title"];
const LINK = /^(?:https?:\/\/|mailto:)[^\s\u0000-\u001f]+$/i;
const PICTURE = /^data:image\/(?:png|jpeg|gif|webp|avif);base64,[a-z0-9+/=]+$/i;
const LANGUAGE = /^(?:language-[\w+#.-]{1,30}|math)$/;
const PILE = /([\p{M}\u200d]{24})[\p{M}\u200d]+/gu; // accents on one letter: browsers take the square of their number
const BLOCKS = "p, li, h1, h2, h3, h4, h5, h6, td, th, blockquote, summary";

// of the text that is read now
let end = 0; // of the time for it
let nTags = 0; // that it has as HTML

/** marked's lexer with bounds; what is beyond them becomes text. */
class BoundedLexer extends Lexer {
  #depth = 0;

  blockTokens(source, tokens = [], more = false) {
    if (!this.#within(source)) return pushText(tokens, source);
    this.#depth += 1;
    try {
      return super.blockTokens(source, tokens, more);
    } finally {
      this.#depth -= 1;
    }
  }

  inlineTokens(source, tokens = []) {
    if (source.length > MOST_INLINE || !this.#within(source)) return pushText(tokens, source);
    this.#depth += 1;
    try {
      return super.inlineTokens(source, tokens);
    } finally {
      this.#depth -= 1;
    }
  }

  #within() {
    return this.#depth < MOST_DEPTH && performance.now() < end;
  }
}

function pushText(tokens, source) {
  if (source) tokens.push({ type: "text", raw: source, text: source, escaped: false });
  return tokens;
}

const ENTITY = /&(?!(?:#\d{1,7}|#x[a-f0-9]{1,6}|[a-z]\w{1,31});)|[<>"']/gi; // what is no part of one
const TAG = /<\/?([a-z][a-z0-9]{0,15})\b[^>]{0,200}>|</gi;

const plainRenderer = new Renderer();

const renderer = {
  text({ text, tokens }) {
    return tokens ? this.parser.parseInline(tokens) : text.replace(ENTITY, coded);
  },
  html({ text, block }) {
    const shown = text.replace(TAG, (tag, name) => {
      if (name && BARE.has(name.toLowerCase()) && (VOID.has(name) || ++nTags <= MOST_TAGS)) return `<${tag[1] === "/" ? "/" : ""}${name}>`;
      return escaped(tag);
    });
    return block && shown.includes("&#60;") ? plainRenderer.code({ text, lang: "html", escaped: false }) : shown;
  },
  link({ href, title, tokens }) {
    const text = this.parser.parseInline(tokens);
    if (!LINK.test(href)) return text; // of another kind, or of a path: it leads nowhere from here
    return `<a href="${escaped(href)}" title="${escaped(title ? `${title}: ${href}` : href)}">${text}</a>`;
  },
  image({ href, text }) {
    if (PICTURE.test(href)) return `<img src="${escaped(href)}" alt="${escaped(text)}">`;
    const label = `image: ${escaped(text || href.slice(0, 80))}`;
    return LINK.test(href) ? `<a href="${escaped(href)}" title="${escaped(href)}">${label}</a>` : `[${label}]`;
  },
  checkbox({ checked }) {
    return checked ? "☑ " : "☐ ";
  },
};

/** When the time is over: the rest as text. false: go on. Of what marked asks for at every block and every word. */
const unlessLate = (source) =>
  performance.now() < end ? false : { type: "text", raw: source, text: source, escaped: false };

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer,
  extensions: math,
  tokenizer: { space: unlessLate, escape: unlessLate },
});

const purifier = globalThis.DOMPurify;
purifier.addHook("afterSanitizeAttributes", (node) => {
  if (node.hasAttribute?.("class") && !(node.localName === "code" && LANGUAGE.test(node.className))) {
    node.removeAttribute("class");
  }
  if (node.hasAttribute?.("src") && !PICTURE.test(node.getAttribute("src"))) node.removeAttribute("src");
  if (node.hasAttribute?.("href")) {
    if (!LINK.test(node.getAttribute("href"))) node.removeAttribute("href");
    else {
      node.setAttribute("rel", "noopener noreferrer nofollow");
      node.setAttribute("target", "_blank");
    }
  }
});

/** The elements of a text. complete: nothing more will follow; until then the code at the end has no colours */
export function renderMarkdown(text, { complete = true } = {}) {
  text = text.replace(PILE, "$1\ufffd");
  const options = marked.defaults;
  end = performance.now() + MOST_MILLISECONDS;
  nTags = 0;
  if (text.length > MOST_TEXT) return plain(text);
  const tokens = new BoundedLexer(options).lex(text);
  showLarge(tokens);
  const fragment = purifier.sanitize(marked.parser(tokens, options), {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ATTRIBUTES,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });
  finish(fragment, complete);
  return fragment;
}

/** Tables and lists that are more than a browser lays out at once are text. */
function showLarge(tokens) {
  const left = { table: MOST_CELLS, list: MOST_ITEMS };
  marked.walkTokens(tokens, (token) => {
    const { type } = token;
    if (!Object.hasOwn(left, type)) return;
    const size = type === "list" ? token.items.length : token.header.length * (token.rows.length + 1);
    if (size <= left[type]) left[type] -= size;
    else Object.assign(token, { type: "code", text: token.raw, lang: "", header: [], rows: [], items: [] });
  });
}

/** A text without any markdown. */
function plain(text) {
  const fragment = document.createDocumentFragment();
  fragment.append(asItIs(text));
  visibleControls(fragment);
  return fragment;
}

/** What sanitized elements get: directions, frames, honest links, code blocks. */
function finish(fragment, complete) {
  for (const block of fragment.querySelectorAll(BLOCKS)) block.dir = "auto";
  for (const table of fragment.querySelectorAll("table")) frameTable(table);
  for (const link of fragment.querySelectorAll("a[href]")) tellHost(link);
  const codes = [...fragment.querySelectorAll("pre > code")];
  for (const [index, code] of codes.entries()) {
    const language = /^language-(.+)$/.exec(code.className)?.[1] ?? "";
    const text = code.textContent.replace(/\n$/, "");
    const isOpen = !complete && index === codes.length - 1 && isLast(code.parentElement, fragment);
    code.parentElement.replaceWith(codeBlock(text, language, { coloured: !isOpen }));
  }
  const walker = document.createTreeWalker(fragment, NodeFilter.SHOW_TEXT);
  const long = [];
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (node.length > MOST_INLINE && !node.parentElement?.closest("pre, .as-it-is")) long.push(node);
  }
  for (const node of long) node.replaceWith(asItIs(node.data));
  visibleControls(fragment); // at last: what is copied of code is what the model wrote
}

/** Whether nothing follows an element in the fragment. */
function isLast(element, fragment) {
  for (let node = element; node !== fragment; node = node.parentNode) {
    if (node.nextElementSibling) return false;
  }
  return true;
}

/** It scrolls in itself, by the keyboard, too. */
function frameTable(table) {
  const frame = el("div", { class: "table-frame", tabindex: 0, role: "region", "aria-label": "table" });
  table.replaceWith(frame);
  frame.append(table);
}

/** Where a link leads, beside a text that looks like another address. */
function tellHost(link) {
  const host = link.hostname.replace(/^www\./, "");
  const told = /^\s*(?:https?:\/\/)?(?:www\.)?((?:[\w-]+\.)+[a-z]{2,})/i.exec(link.textContent.slice(0, 300))?.[1];
  if (!told || told.toLowerCase() === host || !host) return;
  link.append(el("span", { class: "link-host", text: ` (${host})` }));
}
