/** What the server says of itself, and what follows from two looks at it. No elements here. */

import { call } from "./api.js";

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

/** Prometheus' text as {name: number} and {name: {reason: number}}. */
export function parseMetrics(text) {
  const found = {};
  for (const line of text.split("\n")) {
    const match = /^([\w:]+)(?:\{reason="([\w-]+)"\})? (\S+)$/.exec(line);
    if (!match) continue;
    const [, name, reason, value] = match;
    const plain = name.replace(/^(?:llamacpp|hybrid):/, "");
    if (reason) (found[plain] ??= {})[reason] = Number(value);
    else found[plain] = Number(value);
  }
  return found;
}

/** What does not change while the server runs. */
export async function facts() {
  const [model] = (await (await get("v1/models")).json()).data;
  const response = await get("props", { accept: [400] }); // an encoder has none
  const props = response && (await response.json());
  return { name: model.id, type: props?.model_ftype ?? "", encoder: props === null || !!model.capabilities?.includes("embedding"), ...model.meta };
}

/** One look: {seconds, started, metrics, slots: null where they are not shown}. */
export async function look(isEncoder) {
  const [metrics, slots] = await Promise.all([get("metrics"), isEncoder ? null : get("slots", { accept: [501] })]);
  return {
    seconds: performance.now() / 1000,
    started: Number(metrics.headers.get("Process-Start-Time-Unix")),
    metrics: parseMetrics(await metrics.text()),
    slots: slots && (await slots.json()).map(slotOf),
  };
}

function slotOf(slot) {
  if (!slot.is_processing) return { id: slot.id, busy: false };
  return {
    id: slot.id,
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
  return metrics.tokens_predicted_total + (slots ?? []).reduce((sum, slot) => sum + (slot.drawn ?? 0), 0);
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
    this.read = [...this.read, rate(now.metrics.prompt_tokens_total, last.metrics.prompt_tokens_total)].slice(-KEPT);
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
