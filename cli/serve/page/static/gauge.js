/** How much of the model's context the shown conversation takes. */

import { byId, count, tokens } from "./dom.js";
import { model } from "./model.js";

const NEAR = 0.85; // share of the context from which on it warns

/** Shows what the last answer of a path took of the context, in tokens; hidden while either is unknown. */
export function showGauge(path) {
  const { context } = model;
  const place = byId("gauge");
  const took = path.findLast(({ timings }) => timings)?.timings;
  place.hidden = !took || !context;
  if (place.hidden) return;
  const used = took.cache_n + took.prompt_n + took.predicted_n;
  const warns = used >= NEAR * context;
  const text = `${warns ? "Nearly full: " : ""}${count(used)} of ${tokens(context)}`;
  place.textContent = text;
  place.classList.toggle("warns", warns);
  for (const [name, value] of Object.entries({ max: context, now: Math.min(used, context), text })) place.setAttribute(`aria-value${name}`, value);
}
