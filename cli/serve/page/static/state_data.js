/** What the server says of itself, and what follows from two looks at it. No elements here. */

import { call } from "./api.js";
import { about, look as lookAtModels, model } from "./model.js";

const PATIENCE = 5_000; // milliseconds
const KEPT = 120; // looks that rates are remembered of

/** The response; null where the server refuses with a status in `accept`. */
async function get(path, { accept = [] } = {}) {
  try {
    return await call(path, { signal: AbortSignal.timeout(PATIENCE) });
  } catch (error) {
    if (accept.includes(error.status)) return null;
    throw error;
  }
}

/** Prometheus' text as {name: number} and {name: {reason: number}}: of one model, or the sums of all. */
export function parseMetrics(text, only = "") {
  const found = {};
  for (const line of text.split("\n")) {
    const match = /^([\w:]+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!match) continue;
    const [, name, labels = "", value] = match;
    const { model: whose, reason } = Object.fromEntries([...labels.matchAll(/(\w+)=("(?:[^"\\]|\\.)*")/g)].map(([, label, quoted]) => [label, JSON.parse(quoted)]));
    if (only && whose !== undefined && whose !== only) continue;
    const plain = name.replace(/^(?:llamacpp|hybrid):/, "");
    const [place, key] = reason ? [(found[plain] ??= {}), reason] : [found, plain];
    place[key] = (place[key] ?? 0) + Number(value);
  }
  return found;
}

const types = new Map(); // of weights, by model

/** The models of the server, and what is known of the one with this name; "": of all. */
export async function facts(name) {
  await lookAtModels(true);
  const all = model.all.filter(({ parent }) => !parent);
  const one = all.length === 1 ? all[0] : all.find(({ id }) => id === name);
  const shown = one ? [one] : all;
  const loaded = shown.filter(({ state }) => state === "loaded");
  const answering = loaded.filter(({ architecture }) => architecture.output_modalities[0] === "text").map(({ id }) => id);
  if (one && answering.length && !types.has(one.id)) types.set(one.id, (await (await get(about("props", one.id))).json()).model_ftype);
  return { all, one, loaded, answering, type: types.get(one?.id) };
}

/** One look: {seconds, started, metrics, slots: null where they are not shown}. */
export async function look({ all, one, answering }) {
  const asked = answering.map((id) => get(about("slots", id), { accept: [501, 400] })); // 400: it has fallen asleep meanwhile
  const [metrics, ...slots] = await Promise.all([get("metrics"), ...asked]);
  const found = parseMetrics(await metrics.text(), all.length > 1 ? one?.id : "");
  const shown = await Promise.all(slots.filter(Boolean).map((each) => each.json()));
  return {
    seconds: performance.now() / 1000,
    started: Number(metrics.headers.get("Process-Start-Time-Unix")),
    metrics: found,
    slots: shown.length < answering.length || !answering.length ? null : shown.flatMap((each, at) => each.map((slot) => slotOf(slot, answering[at]))),
  };
}

function slotOf(slot, name) {
  const id = `${name} ${slot.id}`;
  if (!slot.is_processing) return { id, busy: false };
  return {
    id,
    name,
    busy: true,
    total: slot.n_prompt_tokens,
    reused: slot.n_prompt_tokens_cache,
    read: slot.n_prompt_tokens_processed,
    drawn: slot.next_token[0].n_decoded,
    left: slot.next_token[0].n_remain,
  };
}

/** Tokens drawn in all: /metrics counts an answer when it has ended. */
function drawnBy({ metrics, slots }) {
  return (metrics.tokens_predicted_total ?? 0) + (slots ?? []).reduce((sum, slot) => sum + (slot.drawn ?? 0), 0);
}

/** The last looks: rates now, and before. */
export class Looks {
  #last = null;
  drawn = [];
  read = [];
  slots = new Map(); // id -> {since, drawn per second}

  /** Notes a look; the rates of the time since the last one are at the ends of `drawn` and `read`. */
  add(now) {
    const last = this.#last;
    this.#last = now;
    if (last === null || now.started !== last.started) {
      this.slots.clear();
      this.drawn = [];
      this.read = [];
      return;
    }
    const seconds = Math.max(0.05, now.seconds - last.seconds);
    const rate = (after, before) => Math.max(0, after - before) / seconds;
    this.drawn = [...this.drawn, rate(drawnBy(now), drawnBy(last))].slice(-KEPT);
    this.read = [...this.read, rate(now.metrics.prompt_tokens_total ?? 0, last.metrics.prompt_tokens_total ?? 0)].slice(-KEPT);
    for (const slot of now.slots ?? []) this.#slot(slot, last.slots?.find(({ id }) => id === slot.id), now, seconds);
  }

  #slot(slot, before, now, seconds) {
    if (!slot.busy) {
      this.slots.delete(slot.id);
      return;
    }
    const isSame = before?.busy && before.total === slot.total && before.drawn <= slot.drawn && before.read <= slot.read;
    const since = (isSame && this.slots.get(slot.id)?.since) || now.seconds;
    this.slots.set(slot.id, { since, rate: isSame ? (slot.drawn - before.drawn) / seconds : 0 });
  }
}
