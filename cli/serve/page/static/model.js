/** What the server has said of its models, which of them answers, and how full its context is. */

import { get } from "./api.js";
import { byId, count, tokens } from "./dom.js";
import { stored } from "./storage.js";

const NEAR = 0.85; // share of the context from which on it warns
export const CHOSEN = "hybrid-model"; // the last choice

/** id: who answers next, null: not yet known; context: in tokens, 0: not known; eyes: whether it takes pictures; all: entries of the menu */
export const model = { id: null, context: 0, eyes: false, all: [] };

/** Asks for the models that answer, or for all; an adapter is named with its base. */
export async function look(all = false) {
  const { data } = await get("models");
  const chats = data.filter(({ architecture }) => all || architecture.output_modalities[0] === "text");
  model.all = (chats.length ? chats : data).map((one) => (one.parent ? { ...one, id: `${one.parent}:${one.id}` } : one));
}

export const several = () => model.all.length > 1;
export const entryOf = (id) => model.all.find((one) => one.id === id);

/** The one of a conversation, else the last choice, else the first. */
export const meant = (id) => entryOf(id) ?? entryOf(stored(CHOSEN)) ?? model.all[0];

/** Whether it is not loaded. */
export const isAway = (id) => several() && (entryOf(id)?.state ?? "loaded") !== "loaded";

/** A path about one model, which does not wake it. */
export const about = (path, id = model.id) => `${path}?model=${encodeURIComponent(id)}&autoload=false`;

/** Puts the name of who has answered, or what is known instead, into a heading. */
export function named(heading, own) {
  if (!own) heading.classList.add("model-name");
  heading.textContent = own ?? model.id ?? "Answer";
  return heading;
}

/** From now on, and in what is shown already. */
export function setName(id) {
  model.id = id;
  for (const heading of document.querySelectorAll(".model-name")) named(heading);
}

/** Tokens of a path as its last answer told; undefined: none has. */
export function usedBy(path) {
  const took = path.findLast(({ timings }) => timings)?.timings;
  return took && took.cache_n + took.prompt_n + took.predicted_n;
}

/** Shows what the last answer of a path took of the context, in tokens; hidden while either is unknown. */
export function showGauge(path) {
  const { context } = model;
  const place = byId("gauge");
  const used = usedBy(path);
  place.hidden = !used || !context;
  if (place.hidden) return;
  const warns = used >= NEAR * context;
  const text = `${warns ? "Nearly full: " : ""}${count(used)} of ${tokens(context)}`;
  place.textContent = text;
  place.classList.toggle("warns", warns);
  for (const [name, value] of Object.entries({ max: context, now: Math.min(used, context), text })) place.setAttribute(`aria-value${name}`, value);
}
