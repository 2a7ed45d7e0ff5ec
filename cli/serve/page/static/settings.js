/** What is asked of the model beside the messages, how the page looks, and the key. Kept in this browser, the key until the tab is closed. */

import { get, setKey } from "./api.js";
import { el, iconButton } from "./dom.js";
import { FIELDS, nameOf } from "./settings_fields.js";

const KEPT = "hybrid-settings";
const THEME = "hybrid-theme";
const MOST = 1_000_000; // characters of a field

function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // storage is refused: settings last as long as the page
  }
}

function store(name, text) {
  try {
    if (text === null) localStorage.removeItem(name);
    else localStorage.setItem(name, text);
  } catch {
    // likewise
  }
}

/** The texts that were kept, those of fields that are here and can have them. */
function kept() {
  let found;
  try {
    found = Object(JSON.parse(stored(KEPT)));
  } catch {
    found = {};
  }
  const text = ({ name, options }) => {
    const value = Object.hasOwn(found, name) ? found[name] : null;
    return typeof value === "string" && value.length <= MOST && (!options || Object.hasOwn(options, value)) ? value : "";
  };
  return Object.fromEntries(FIELDS.map((field) => [field.name, text(field)]));
}

export class Settings {
  /** @param {HTMLDialogElement} [dialog] that it is drawn into */
  constructor(dialog = document.body.appendChild(el("dialog"))) {
    this.dialog = dialog;
    this.texts = kept();
    this.inputs = {};
    this.notes = {};
    dialog.className = "settings";
    dialog.setAttribute("aria-labelledby", "settings-title");
    const fields = Object.fromEntries(FIELDS.map((field) => [field.name, this.#field(field)]));
    const reset = el("button", { type: "button", class: "button", text: "All as the model has it", onclick: () => this.#reset() });
    const numbers = FIELDS.filter((field) => field.numeric).map(({ name }) => fields[name]);
    dialog.append(
      el("form", { onsubmit: (event) => { event.preventDefault(); dialog.close(); } },
        el("header", {}, el("h2", { id: "settings-title", text: "Settings" }), iconButton("close", "Close", () => dialog.close())),
        el("div", { class: "fields" },
          fields.system,
          fields.think,
          el("fieldset", {}, el("legend", { text: "Drawing of tokens" }), el("div", { class: "numbers" }, ...numbers), reset),
          fields.schema,
          fields.tools,
          el("fieldset", {}, el("legend", { text: "This page" }), el("div", { class: "numbers" }, this.#theme(), this.#key()))),
        el("footer", {}, el("button", { class: "button strong", text: "Done" }))),
    );
    for (const { name } of FIELDS) this.#check(name);
  }

  /** The text before every conversation. */
  get system() {
    return this.texts.system;
  }

  /** Fields of a request: those that are set and can be understood. */
  request() {
    const set = FIELDS.map((field) => [field, this.#value(field)]).filter(([, { value }]) => value !== undefined);
    return Object.assign({}, ...set.map(([field, { value }]) => field.sends(value)));
  }

  /** Whether a field of requests, as the server names it, is set here. */
  has(param) {
    return nameOf(param) !== null;
  }

  /** Shows it; `name`: the field to begin with. */
  open(name = null) {
    if (!this.dialog.open) this.dialog.showModal();
    (this.inputs[name] ?? this.inputs.system).focus();
    this.#defaults();
  }

  /** What the server has refused, beside the field that it names. */
  blame(param, message) {
    const name = nameOf(param);
    if (name) this.#say(name, message);
    this.open(name);
  }

  #value({ name, read }) {
    const text = this.texts[name];
    if (text.trim() === "") return {};
    try {
      return { value: read(text) };
    } catch (error) {
      return { error: `${error.message}. It is left out until it can be read.` };
    }
  }

  #check(name) {
    this.#say(name, this.#value(FIELDS.find((field) => field.name === name)).error ?? "");
  }

  #say(name, message) {
    this.notes[name].textContent = message;
    this.notes[name].hidden = !message;
    this.inputs[name].setAttribute("aria-invalid", String(Boolean(message)));
  }

  #set(name, text) {
    this.texts[name] = text;
    store(KEPT, JSON.stringify(this.texts));
  }

  #reset() {
    for (const { name } of FIELDS.filter((field) => field.numeric)) {
      this.inputs[name].value = "";
      this.#set(name, "");
      this.#check(name);
    }
  }

  #field({ name, label, hint, rows, code, options, numeric }) {
    const more = { oninput: () => this.#set(name, input.value), onchange: () => this.#check(name), maxlength: MOST };
    const input = rows ? el("textarea", { rows, class: code && "code", spellcheck: code && "false", ...more })
      : options ? select(options, more) : el("input", { inputmode: numeric && "decimal", autocomplete: "off", ...more });
    input.value = this.texts[name];
    return this.#labelled(name, label, hint, input);
  }

  #labelled(name, label, hint, input) {
    const [id, about, trouble] = [`set-${name}`, `set-${name}-about`, `set-${name}-trouble`];
    this.inputs[name] = input;
    this.notes[name] = el("p", { class: "refused", id: trouble, role: "alert", hidden: true });
    input.id = id;
    input.setAttribute("aria-describedby", hint ? `${about} ${trouble}` : trouble);
    const note = hint && el("p", { class: "note", id: about, text: hint });
    return el("div", { class: "field" }, el("label", { for: id, text: label }), note, input, this.notes[name]);
  }

  #theme() {
    const input = select({ "": "System's", light: "Light", dark: "Dark" }, {
      onchange: () => {
        store(THEME, input.value || null);
        if (input.value) document.documentElement.dataset.theme = input.value;
        else delete document.documentElement.dataset.theme;
      },
    });
    input.value = document.documentElement.dataset.theme ?? "";
    return this.#labelled("theme", "Colours", null, input);
  }

  /** Of servers with --api-key. */
  #key() {
    const change = () => {
      setKey(input.value.trim());
      dispatchEvent(new Event("hybrid-key"));
    };
    const input = el("input", { type: "password", autocomplete: "off", onchange: change });
    return this.#labelled("key", "Key of the server", null, input);
  }

  /** What the model has, where a field is empty. */
  async #defaults() {
    try {
      const { params } = (await get("props")).default_generation_settings;
      for (const { name } of FIELDS.filter((field) => field.numeric && field.name !== "seed"))
        if (params[name] >= 0) this.inputs[name].placeholder = Number(params[name].toPrecision(6));
    } catch {
      // the fields stay empty
    }
  }
}

function select(options, props) {
  return el("select", props, ...Object.entries(options).map(([value, text]) => el("option", { value, text })));
}
