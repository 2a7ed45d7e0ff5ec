/** The dialog of the settings: also how the page looks, and the key, which is kept until the tab is closed. */

import { get, setKey } from "./api.js";
import { el, iconButton, style } from "./dom.js";
import { about, isAway, model } from "./model.js";
import { FIELDS, MOST } from "./settings_fields.js";
import { store } from "./storage.js";

const THEME = "hybrid-theme";

export class SettingsDialog {
  /** @param {Settings} settings what it shows and sets */
  static async of(settings) {
    await style("dialogs");
    return new SettingsDialog(settings);
  }

  constructor(settings) {
    this.settings = settings;
    const dialog = (this.dialog = document.body.appendChild(el("dialog", { class: "settings", "aria-labelledby": "settings-title" })));
    this.inputs = {};
    this.notes = {};
    const fields = Object.fromEntries(FIELDS.map((field) => [field.name, this.#field(field)]));
    const reset = el("button", { type: "button", class: "button", text: "All as the model has it", onclick: () => this.#reset() });
    const numbers = FIELDS.filter((field) => field.numeric).map(({ name }) => fields[name]);
    dialog.append(
      el("form", { onsubmit: (event) => { event.preventDefault(); dialog.close(); } },
        el("header", {}, el("h2", { id: "settings-title", text: "Settings" }), iconButton("close", "Close", () => dialog.close())),
        el("div", { class: "fields" },
          fields.system,
          fields.think,
          el("fieldset", {}, el("legend", { text: "Sampling" }), el("div", { class: "numbers" }, ...numbers), reset),
          fields.schema,
          fields.tools,
          el("fieldset", {}, el("legend", { text: "This page" }), el("div", { class: "numbers" }, this.#theme(), this.#key()))),
        el("footer", {}, el("button", { class: "button strong", text: "Done" }))),
    );
    for (const { name } of FIELDS) this.#check(name);
  }

  /** Shows it; `name`: the field to begin with. */
  open(name) {
    if (!this.dialog.open) this.dialog.showModal();
    (this.inputs[name] ?? this.inputs.system).focus();
    this.#defaults();
  }

  /** What the server has refused, beside the field that it names. */
  blame(name, message) {
    if (name) this.#say(name, message);
    this.open(name);
  }

  #check(name) {
    this.#say(name, this.settings.value(FIELDS.find((field) => field.name === name)).error ?? "");
  }

  #say(name, message) {
    this.notes[name].textContent = message;
    this.notes[name].hidden = !message;
    this.inputs[name].setAttribute("aria-invalid", String(Boolean(message)));
  }

  #reset() {
    for (const { name } of FIELDS.filter((field) => field.numeric)) {
      this.inputs[name].value = "";
      this.settings.set(name, "");
      this.#check(name);
    }
  }

  #field({ name, label, hint, rows, code, options, numeric }) {
    const more = { oninput: () => this.settings.set(name, input.value), onchange: () => this.#check(name), maxlength: MOST };
    const input = rows ? el("textarea", { rows, class: code && "code", spellcheck: code && "false", ...more })
      : options ? select(options, more) : el("input", { inputmode: numeric && "decimal", autocomplete: "off", ...more });
    input.value = this.settings.texts[name];
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
      const props = isAway(model.id) ? {} : await get(about("props"));
      const { default_generation_settings: { params } = {}, chat_template_caps: caps } = props;
      this.inputs.think.closest(".field").hidden = caps?.supports_thinking === false;
      for (const { name } of FIELDS.filter((field) => field.numeric && field.name !== "seed"))
        this.inputs[name].placeholder = params?.[name] >= 0 ? Number(params[name].toPrecision(6)) : "";
    } catch {
      // the fields stay empty
    }
  }
}

function select(options, props) {
  return el("select", props, ...Object.entries(options).map(([value, text]) => el("option", { value, text })));
}
