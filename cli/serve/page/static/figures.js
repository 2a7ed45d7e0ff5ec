/** The bar of an answer: what was reused, read and drawn, and how fast. */

import { count, el, svg, tokens } from "./dom.js";

const rate = (perSecond) => (perSecond >= 100 ? count(perSecond) : perSecond.toFixed(1));

/**
 * @param {Object} timings llama-server's, of an answer
 * @param {Object|null} usage OpenAI's, with `cache`, which says why what was read was read
 */
export function figures(timings, usage) {
  const parts = [
    ["reused", timings.cache_n, null],
    ["read", timings.prompt_n, timings.prompt_per_second],
    ["drawn", timings.predicted_n, timings.predicted_per_second],
  ];
  const all = parts.reduce((sum, [, n]) => sum + n, 0);
  const words = { reused: "reused", read: "read", drawn: "generated" };
  const list = el("dl", { class: "figures", title: why(usage) });
  list.append(strip(parts, all));
  for (const [name, n, speed] of parts) {
    list.append(
      el("div", { class: `figure ${name}` },
        el("dt", { text: words[name] }),
        el("dd", {}, count(n), speed ? el("span", { class: "rate", text: ` ${rate(speed)}/s` }) : null)),
    );
  }
  return list;
}

/** What the pictures of a question took, where the server has said it: a line, else "". */
export function seenIn(pictures) {
  const told = pictures.filter((each) => each.tokens);
  const sum = (name) => told.reduce((all, each) => all + (each[name] ?? 0), 0);
  if (!told.length) return "";
  const which = told.length === 1 ? "The picture" : `${told.length} pictures`;
  return `${which}: ${tokens(sum("tokens"))}${sum("ms") ? ` \u00b7 seen in ${count(sum("ms"))} ms` : ""}`;
}

function why(usage) {
  const cache = usage?.cache;
  return cache ? `${tokens(cache.processed)} of the prompt were read: ${cache.reason}` : null;
}

/** Shares of all tokens, side by side. */
function strip(parts, all) {
  const drawing = svg("svg", { class: "strip", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" });
  let x = 0;
  for (const [name, n] of parts) {
    const width = all ? (100 * n) / all : 0;
    drawing.append(svg("rect", { class: name, x, y: 0, width, height: 4 }));
    x += width;
  }
  return drawing;
}
