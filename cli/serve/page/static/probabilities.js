/**
 * An answer token by token, coloured by how surprising each was; what else it might have been, to go on from there.
 *
 * Colour is never alone: the more surprising a token, the heavier its underline, and its label says the number. One of
 * the tokens is in the order of Tab; arrows, Home and End go on from there, Enter shows the alternatives.
 */

import { withControls } from "./controls.js";

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
  const all = document.createElement("div");
  all.className = "tokens";
  all.setAttribute("role", "group");
  all.setAttribute("aria-label", "tokens by how likely they were; arrow keys go through them, Enter shows alternatives");
  const decoder = new TextDecoder();
  tokens.forEach((token, index) => {
    const text = token.bytes ? decoder.decode(new Uint8Array(token.bytes), { stream: true }) : token.token;
    all.append(tokenElement(token, text, index));
  });
  if (all.firstChild) all.firstChild.tabIndex = 0;
  all.addEventListener("keydown", (event) => moved(all, event));
  all.addEventListener("click", (event) => {
    const shown = event.target.closest(".token");
    if (!shown || !all.contains(shown) || !getSelection().isCollapsed) return; // whoever selects text wants no list
    focusOn(all, shown);
    showAlternatives(all, shown, tokens[shown.dataset.index], onContinue);
  });
  return all;
}

/** text: what of the answer becomes certain with this token: nothing, where a character goes on in the next one. */
function tokenElement(token, text, index) {
  const share = shareOf(token);
  const shown = document.createElement("span");
  shown.className = `token surprise-${levelOf(share)}`;
  shown.dataset.index = index;
  shown.tabIndex = -1;
  shown.setAttribute("role", "button");
  shown.setAttribute("aria-haspopup", "true");
  shown.title = `${readable(token)}: ${percent(share)}, ${NAMES[levelOf(share)]}`;
  shown.setAttribute("aria-label", shown.title);
  if (text) shown.append(withControls(text.replaceAll("\n", "↵\n")));
  else shown.classList.add("part");
  return shown;
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
  if (!token) return "(the end)";
  return token.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥");
}

// --- keys ---
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
  if (!next?.classList.contains("token")) return;
  event.preventDefault();
  event.stopPropagation();
  focusOn(all, next);
}

function focusOn(all, token) {
  for (const other of all.querySelectorAll('.token[tabindex="0"]')) other.tabIndex = -1;
  token.tabIndex = 0;
  token.focus();
}

// --- alternatives ---
function showAlternatives(all, shown, token, onContinue) {
  document.querySelector(".alternatives")?.remove();
  const list = document.createElement("div");
  list.className = "alternatives";
  list.popover = "auto"; // Escape and a click elsewhere close it
  list.setAttribute("role", "group");
  list.setAttribute("aria-label", `in the place of ${readable(token)}`);
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
  const row = document.createElement("button");
  row.type = "button";
  row.className = "alternative";
  row.disabled = choose === null;
  if (choose) row.addEventListener("click", choose);
  const text = document.createElement("span");
  text.className = "alternative-text";
  text.append(withControls(readable(one)));
  const bar = document.createElement("span");
  bar.className = "alternative-bar";
  bar.style.setProperty("--share", share); // by script, which the policy allows
  const number = document.createElement("span");
  number.className = "alternative-share";
  number.textContent = percent(share);
  row.append(text, bar, number);
  if (isDrawn) row.setAttribute("aria-current", "true");
  row.title = isDrawn ? "this was drawn" : choose ? "go on from here" : "";
  return row;
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
