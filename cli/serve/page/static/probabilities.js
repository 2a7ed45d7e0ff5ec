/**
 * An answer token by token, coloured by how surprising each was; what else it might have been, to go on from there.
 *
 * Colour is never alone: the more surprising a token, the heavier its underline, and its label says the number. One of
 * the tokens is in the order of Tab; arrows, Home and End go on from there, Enter shows the alternatives.
 */

import { withControls } from "./controls.js";
import { el } from "./dom.js";

const LEVELS = [0.9, 0.5, 0.2, 0.05]; // tokens less likely than each are a level further up
const GAP = 6; // pixels between a token and its alternatives, and around these
const NAMES = ["expected", "likely", "open", "surprising", "very surprising"];

const percent = (share) =>
  share >= 0.9995 ? "100 %" : share >= 0.1 ? `${(100 * share).toFixed(0)} %`
    : share >= 0.001 ? `${(100 * share).toFixed(1)} %` : "< 0.1 %";
const shareOf = ({ logprob }) => (Number.isFinite(logprob) ? Math.min(1, Math.exp(logprob)) : 0);
const levelOf = (share) => LEVELS.filter((limit) => share < limit).length;
const hex = (bytes) => bytes.map((byte) => byte.toString(16).toUpperCase().padStart(2, "0")).join(" ");

/**
 * @param {Array<{token: string, logprob: number, bytes: number[]|null, top_logprobs: object[]}>} tokens as OpenAI has
 *   them in logprobs.content
 * @param {{onContinue?: (index: number, alternative: object) => void}} options called with the number of a token and
 *   the alternative that was chosen in its place; without it alternatives are only shown
 * @returns {HTMLElement}
 */
export function colouredTokens(tokens, { onContinue } = {}) {
  const decoder = new TextDecoder();
  const all = el("div", { class: "tokens", role: "group", "aria-label": "tokens by how likely they were; arrow keys go through them, Enter shows alternatives" },
    ...tokens.map((token, index) =>
      tokenElement(token, token.bytes ? decoder.decode(new Uint8Array(token.bytes), { stream: true }) : token.token, index)));
  if (all.firstChild) all.firstChild.tabIndex = 0;
  all.addEventListener("keydown", (event) => moved(all, event));
  all.addEventListener("click", ({ target }) => {
    const shown = target.closest(".token");
    if (!shown || !getSelection().isCollapsed) return; // whoever selects text wants no list
    focusOn(all, shown);
    showAlternatives(shown, tokens[shown.dataset.index], onContinue);
  });
  return all;
}

/** text: what of the answer becomes certain with this token: nothing, where a character goes on in the next one. */
function tokenElement(token, text, index) {
  const share = shareOf(token);
  const title = `${readable(token)}: ${percent(share)}, ${NAMES[levelOf(share)]}`;
  return el("span",
    { class: `token surprise-${levelOf(share)}${text ? "" : " part"}`, "data-index": index, tabindex: -1, role: "button", "aria-haspopup": "true", title, "aria-label": title },
    text && withControls(text.replaceAll("\n", "↵\n")));
}

/** A token as one line in which white space is seen; bytes where it is no text. */
function readable({ token, bytes }) {
  if (bytes?.length) {
    try {
      token = new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(bytes));
    } catch {
      return `bytes ${hex(bytes)}`;
    }
  }
  return token ? token.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥") : "(the end)";
}

function moved(all, event) {
  const now = event.target.closest(".token");
  if (!now) return;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    now.click();
    return;
  }
  const next = {
    ArrowRight: now.nextElementSibling, ArrowLeft: now.previousElementSibling,
    Home: all.firstElementChild, End: all.lastElementChild,
  }[event.key];
  if (!next) return;
  event.preventDefault();
  event.stopPropagation();
  focusOn(all, next);
}

function focusOn(all, token) {
  for (const other of all.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
  token.tabIndex = 0;
  token.focus();
}

// --- alternatives ---
function showAlternatives(shown, token, onContinue) {
  document.querySelector(".alternatives")?.remove();
  // a popover: Escape and a click elsewhere close it
  const list = el("div", { class: "alternatives", popover: "auto", role: "group", "aria-label": `in the place of ${readable(token)}` });
  const drawn = JSON.stringify(token.bytes ?? token.token);
  const others = (token.top_logprobs ?? []).map((one) => [one, JSON.stringify(one.bytes ?? one.token) === drawn]);
  if (!others.some(([, isDrawn]) => isDrawn)) others.push([token, true]);
  for (const [one, isDrawn] of others) {
    const choose = onContinue && !isDrawn ? () => { list.remove(); onContinue(Number(shown.dataset.index), one); } : null;
    list.append(alternative(one, isDrawn, choose));
  }
  list.addEventListener("toggle", ({ newState }) => { if (newState === "closed") list.remove(); });
  list.addEventListener("keydown", (event) => stepped(list, shown, event));
  document.body.append(list);
  list.showPopover();
  place(list, shown);
  (list.querySelector("button:enabled") ?? list).focus();
}

function alternative(one, isDrawn, choose) {
  const share = shareOf(one);
  const bar = el("span", { class: "alternative-bar" });
  bar.style.setProperty("--share", share); // by script, which the policy allows
  return el("button",
    { type: "button", class: "alternative", disabled: !choose, onclick: choose, "aria-current": isDrawn && "true", title: isDrawn ? "this was drawn" : choose && "go on from here" },
    el("span", { class: "alternative-text" }, withControls(readable(one))), bar, el("span", { class: "alternative-share", text: percent(share) }));
}

/** Up and down between the rows; Escape and Tab lead back to the token. */
function stepped(list, shown, event) {
  const rows = [...list.querySelectorAll("button:enabled")];
  const at = rows.indexOf(document.activeElement);
  if (event.key === "ArrowDown") rows[(at + 1) % rows.length]?.focus();
  else if (event.key === "ArrowUp") rows.at(at <= 0 ? -1 : at - 1)?.focus();
  else if (event.key === "Escape" || event.key === "Tab") {
    list.remove();
    shown.focus();
  } else return;
  event.preventDefault();
  event.stopPropagation();
}

/** Below the token, or above it where there is more room, inside the window. */
function place(list, shown) {
  const at = shown.getClientRects()[0] ?? shown.getBoundingClientRect();
  const { width, height } = list.getBoundingClientRect();
  const below = innerHeight - at.bottom - 2 * GAP;
  const top = below >= height || below >= at.top ? at.bottom + GAP : at.top - GAP - height;
  list.style.top = `${Math.max(GAP, Math.min(top, innerHeight - height - GAP))}px`;
  list.style.left = `${Math.max(GAP, Math.min(at.left, innerWidth - width - GAP))}px`;
}
