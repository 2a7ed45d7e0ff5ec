/** The page of the server's state: what it does now, what it keeps; asked for each second while somebody looks. */

import { setKey } from "./api.js";
import { facts, look, Looks } from "./state_data.js";
import { byId, count, el } from "./dom.js";
import { bar, duration, figure, make, rate, row, size } from "./state_view.js";
import { store, stored } from "./storage.js";

const INTERVAL = 1_000; // milliseconds between two looks
const PATIENT = 5_000; // the same where nothing answers

const REASONS = {
  new: "nothing known begins like them",
  differs: "they differ from what is known",
  tokens: "known as other tokens",
  picture: "for another picture",
  continues: "new text behind a known one",
  adapter: "read with another adapter",
  ladder: "since the nearest checkpoint",
  budget: "known once, given up for others",
  last: "the last token",
  off: "nothing is kept",
  logprobs: "logprobs were asked for",
  asked: "as the request asked",
};

const KEPT = "hybrid-state-model"; // whose state this tab shows

let looks = new Looks();
let model = null;
let timer = 0;
let turn = 0; // of the last look: an earlier one that ends later shows nothing

async function renew() {
  clearTimeout(timer);
  const own = (turn += 1);
  let wait = INTERVAL;
  try {
    const known = model?.all.length === 1 ? model : await facts(stored(KEPT, "sessionStorage"));
    const now = await look(known);
    if (own !== turn) return;
    model = known;
    looks.add(now);
    show(now);
  } catch (error) {
    if (own !== turn) return;
    wait = PATIENT;
    fail(error);
  }
  if (document.visibilityState === "visible" && wait) timer = setTimeout(renew, wait);
}

function fail(error) {
  model = null; // another may be served when it is back
  const needsKey = error.status === 401;
  byId("key-form").hidden = !needsKey;
  byId("state").classList.toggle("stale", !needsKey);
  if (needsKey) {
    byId("state").hidden = true;
    if (document.activeElement === document.body) byId("key").focus();
  }
  tell(needsKey ? "a key is needed" : "not reached", needsKey ? "waiting" : "down");
}

/** Said once, not each second: it is read aloud. */
function tell(text, kind) {
  const status = byId("status");
  if (status.textContent !== text) status.textContent = text;
  status.dataset.kind = kind;
}

function show(now) {
  const { metrics, slots } = now;
  byId("key-form").hidden = true;
  byId("state").classList.remove("stale");
  showModel(now);
  byId("state").hidden = !model.loaded.length;
  if (!model.loaded.length) return;
  const busy = metrics.requests_processing ?? 0;
  tell(busy ? "answering" : "idle", busy ? "busy" : "up");
  showFigures(metrics);
  showStreams(slots, now);
  showCache(metrics);
  showReasons(metrics);
  showSums(metrics);
}

/** Whose state it is; which others there are. */
function showModel({ started }) {
  const { all, one, loaded, type } = model;
  const name = one?.id ?? "All models";
  byId("model").textContent = name;
  document.title = `${name}: state`;
  const parts = [
    type, one?.status.why, !one && `${loaded.length} of ${all.length} are loaded`,
    loaded.length && `${size(loaded.reduce((bytes, { meta }) => bytes + meta.size, 0))} of weights`,
    one?.meta.n_ctx && `context ${count(one.meta.n_ctx)}`, `up ${duration(Date.now() / 1000 - started)}`,
  ];
  byId("about").textContent = parts.filter(Boolean).join(" · ");
  if (!loaded.length) tell(one ? one.state : "no model is loaded", "waiting");
  const choice = byId("choice");
  choice.hidden = all.length === 1;
  const names = ["", ...all.map(({ id }) => id)];
  if (choice.options.length === names.length && names.every((id, at) => choice.options[at].value === id)) return;
  choice.replaceChildren(...names.map((value) => el("option", { value, text: value || "All models" })));
  choice.value = one?.id ?? "";
}

const last = (values) => values.at(-1) ?? 0;

// not sums, where all models are shown
const average = (speed = 0) => (model.one ? `${rate(speed)} a second on average` : "");

function showFigures(metrics) {
  figure(byId("drawn"), {
    label: "Drawn", value: rate(last(looks.drawn)), unit: "tokens/s", values: looks.drawn,
    detail: average(metrics.predicted_tokens_seconds),
  });
  figure(byId("read"), {
    label: "Read", value: rate(last(looks.read)), unit: "tokens/s", values: looks.read,
    detail: average(metrics.prompt_tokens_seconds),
  });
  const reused = metrics.prompt_tokens_reused_total ?? 0;
  const all = reused + sum(metrics.prompt_tokens_processed_total);
  const share = make("div");
  figure(byId("reused"), {
    label: "Reused", value: all ? `${((100 * reused) / all).toFixed(0)} %` : "–", unit: all ? "of prompts" : "",
    detail: all ? `${count(reused)} of ${count(all)} tokens` : "no prompt yet",
  });
  share.append(bar([{ kind: "reused", share: all ? reused / all : 0 }], "share of prompts that was reused"));
  byId("reused").append(share);
  const waiting = metrics.requests_deferred ?? 0;
  figure(byId("waiting"), {
    label: "Requests", value: count(metrics.requests_processing ?? 0), unit: "now",
    detail: waiting ? `${count(waiting)} ${waiting === 1 ? "waits" : "wait"} for a place` : "none waits",
  });
  byId("waiting").classList.toggle("pressed", waiting > 0);
}

const sum = (values) => Object.values(values ?? {}).reduce((all, one) => all + one, 0);

function showStreams(slots, now) {
  byId("streams").hidden = !model.answering.length;
  const list = byId("streams-list");
  if (slots === null) {
    byId("streams-note").textContent = "This server does not show them (--no-slots).";
    list.replaceChildren();
    byId("places").replaceChildren();
    return;
  }
  const busy = slots.filter((slot) => slot.busy);
  byId("streams-note").textContent = busy.length ? `${busy.length} of ${slots.length} places are taken` : `${slots.length} places, all free`;
  list.replaceChildren(...busy.map((slot) => stream(slot, now)));
  byId("places").replaceChildren(...Array.from({ length: slots.length - busy.length }, () => make("span")));
}

/** One that is read or drawn. */
function stream(slot, now) {
  const { total, reused, read, drawn } = slot;
  const { since = now.seconds, rate: speed = 0 } = looks.slots.get(slot.id) ?? {};
  const isReading = drawn === 0;
  const item = make("li", "stream");
  const most = Math.max(total + drawn, slot.left > 0 ? total + drawn + slot.left : 0);
  const head = make("p", "stream-head");
  head.append(
    make("strong", "", (model.one ? "" : `${slot.name}: `) + (isReading ? `reading ${count(reused + read)} of ${count(total)}` : `${count(drawn)} drawn`)),
    make("span", "note", isReading ? "" : `${rate(speed)} tokens/s`),
    make("span", "note stream-time", duration(now.seconds - since)),
  );
  const parts = [
    { kind: "reused", share: reused / most },
    { kind: "read", share: read / most },
    { kind: "drawn", share: drawn / most },
  ];
  item.append(head, bar(parts, `${reused} reused, ${read} read, ${drawn} drawn`));
  item.append(make("p", "note", `prompt of ${count(total)}: ${count(reused)} reused, ${count(read)} read`));
  return item;
}

function showCache(metrics) {
  byId("cache").hidden = metrics.budget_bytes === undefined;
  if (byId("cache").hidden) return;
  const { budget_bytes: budget, checkpoint_bytes: states, key_bytes: keys, pinned_bytes: pinned } = metrics;
  const held = states + keys;
  const list = byId("cache-list");
  list.replaceChildren();
  if (!budget) {
    byId("cache-note").textContent = "Nothing is kept (--checkpoint-budget 0).";
    byId("cache-bar").replaceChildren();
    return;
  }
  const share = held / budget;
  const full = share > 0.97 ? "full: what is worth least makes room" : `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} % of ${size(budget)}`;
  byId("cache-note").textContent = full;
  byId("cache").classList.toggle("full", share > 0.97);
  const whole = Math.max(budget, held); // between two steps it may be more
  const parts = [{ kind: "states", share: states / whole }, { kind: "keys", share: keys / whole }];
  byId("cache-bar").replaceChildren(bar(parts, `${size(held)} of ${size(budget)} are used`));
  row(list, "states and logits", size(states), "states");
  row(list, "keys and values", size(keys), "keys");
  row(list, "free", size(Math.max(0, budget - held)), "free");
  if (pinned) row(list, "of it kept on demand", size(pinned));
  row(list, "tokens known", count(metrics.known_tokens));
  row(list, "checkpoints", count(metrics.checkpoints));
  row(list, "answers known", size(metrics.ledger_bytes));
  if (model.one) row(list, "pages of keys in use", `${(100 * metrics.kv_cache_usage_ratio).toFixed(1)} %`);
}

function showReasons(metrics) {
  const found = Object.entries(metrics.prompt_tokens_processed_total ?? {}).filter(([, n]) => n > 0);
  found.sort((a, b) => b[1] - a[1]);
  const all = found.reduce((total, [, n]) => total + n, 0);
  byId("why").hidden = metrics.budget_bytes === undefined;
  byId("why-note").textContent = all ? `${count(all)} tokens` : "No answer has ended yet.";
  const list = byId("why-list");
  list.replaceChildren();
  for (const [reason, n] of found) {
    row(list, REASONS[reason] ?? reason, count(n));
    const last = make("dd", "wide");
    last.append(bar([{ kind: "read", share: n / all }], `${((100 * n) / all).toFixed(0)} %`));
    list.append(last);
  }
}

function showSums(metrics) {
  const list = byId("sums");
  list.replaceChildren();
  row(list, "tokens drawn", count(metrics.tokens_predicted_total ?? 0));
  row(list, "tokens of prompts read", count(metrics.prompt_tokens_total ?? 0));
  if (metrics.embedding_tokens_total) row(list, "tokens of embeddings", count(metrics.embedding_tokens_total));
  row(list, "passes through the model", count(metrics.n_decode_total ?? 0));
  if (model.one && metrics.n_tokens_max) row(list, "longest text", `${count(metrics.n_tokens_max)} tokens`);
  const guessed = metrics.spec_decode_num_draft_tokens_total ?? 0;
  const right = metrics.spec_decode_num_accepted_tokens_total ?? 0;
  if (guessed) row(list, "guesses that were right", `${((100 * right) / guessed).toFixed(0)} % of ${count(guessed)}`);
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(byId("key").value.trim());
  byId("key").value = "";
  renew();
});
byId("choice").addEventListener("change", ({ target: { value } }) => {
  store(KEPT, value, "sessionStorage");
  looks = new Looks();
  renew();
});
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") renew();
  else clearTimeout(timer);
});
renew();
