/** What can be set: texts of fields, the values they stand for, and what a request gets of them. */

export const MOST = 1_000_000; // characters of a text

// --- what a field's text stands for: a value, or an error that says what is expected ---
function number(text) {
  const value = Number(text.replace(",", "."));
  if (!Number.isFinite(value)) throw new Error("A number is expected");
  return value;
}

function whole(text) {
  const value = number(text);
  if (!Number.isSafeInteger(value)) throw new Error("A whole number is expected");
  return value;
}

const json = (what, is) => (text) => {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`Not JSON (${error.message})`);
  }
  if (!is(value)) throw new Error(`${what} is expected`);
  return value;
};
const object = json("A schema, which is a JSON object,", (value) => typeof value === "object" && value !== null && !Array.isArray(value));
const list = json("A JSON list of tools", Array.isArray);

const same = (name) => (value) => ({ [name]: value });
const sampler = (name, label, read, hint) => ({ name, label, read, hint, sends: same(name), numeric: true });

/** In the order of the dialog. `read`: the value of a text; `sends`: what the server gets of it. */
export const FIELDS = [
  { name: "system", label: "Instructions", hint: "Before every conversation, as the system's message", rows: 4, read: String, sends: () => ({}) },
  { name: "think", label: "Thinking", options: { "": "As the model has it", on: "On", off: "Off" }, read: String,
    sends: (value) => ({ chat_template_kwargs: { enable_thinking: value === "on" } }) },
  sampler("temperature", "Temperature", number, "0: always the most likely token"),
  sampler("top_p", "Top-p", number, "keeps the most likely tokens up to this sum"),
  sampler("top_k", "Top-k", whole, "keeps this many of the most likely"),
  sampler("min_p", "Min-p", number, "at least this share of the best one"),
  sampler("repeat_penalty", "Repeat penalty", number, "1: off"),
  sampler("seed", "Seed", whole, "the same seed repeats an answer"),
  sampler("max_tokens", "Max tokens", whole, "limit of an answer"),
  { name: "schema", label: "JSON schema", hint: "Answers have this form", rows: 4, code: true, read: object,
    sends: (schema) => ({ response_format: { type: "json_schema", json_schema: { name: "answer", schema } } }) },
  { name: "tools", label: "Tools", hint: "A JSON list as OpenAI has them. You give their results", rows: 4, code: true, read: list, sends: same("tools") },
];

const OTHERWISE = { response_format: "schema", chat_template_kwargs: "think" }; // fields of requests

/** The field here of a request's field, which may be a path into it (tools/2/function/name); null: it is not set here. */
export function nameOf(param) {
  const field = String(param).split(/\W/)[0];
  if (Object.hasOwn(OTHERWISE, field)) return OTHERWISE[field];
  return FIELDS.some(({ name }) => name === field && !["system", "schema", "think"].includes(name)) ? field : null;
}
