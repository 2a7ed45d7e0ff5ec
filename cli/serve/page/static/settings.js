/** What is asked of the model beside the messages. Kept in this browser; how it is set: settings_dialog.js. */

import { FIELDS, MOST, nameOf } from "./settings_fields.js";
import { store, storedJson } from "./storage.js";

const KEPT = "hybrid-settings";

export class Settings {
  constructor() {
    const found = Object(storedJson(KEPT));
    const text = ({ name, options }) => {
      const value = Object.hasOwn(found, name) ? found[name] : null;
      return typeof value === "string" && value.length <= MOST && (!options || Object.hasOwn(options, value)) ? value : "";
    };
    this.texts = Object.fromEntries(FIELDS.map((field) => [field.name, text(field)]));
  }

  /** The text before every conversation. */
  get system() {
    return this.texts.system;
  }

  /** Fields of a request: those that are set and can be understood. */
  request() {
    const set = FIELDS.map((field) => [field, this.value(field)]).filter(([, { value }]) => value !== undefined);
    return Object.assign({}, ...set.map(([field, { value }]) => field.sends(value)));
  }

  /** Whether a field of requests, as the server names it, is set here. */
  has(param) {
    return nameOf(param) !== null;
  }

  /** What the text of a field means: {}, {value} or {error}. */
  value({ name, read }) {
    const text = this.texts[name];
    if (text.trim() === "") return {};
    try {
      return { value: read(text) };
    } catch (error) {
      return { error: `${error.message}. It is left out until it can be read.` };
    }
  }

  set(name, text) {
    this.texts[name] = text;
    store(KEPT, JSON.stringify(this.texts));
  }

  /** Shows the dialog; `name`: the field to begin with. */
  async open(name = null) {
    (await this.#dialog()).open(name);
  }

  /** Shows what the server has refused, beside the field that it names. */
  async blame(param, message) {
    (await this.#dialog()).blame(nameOf(param), message);
  }

  #dialog() {
    this.dialog ??= import("./settings_dialog.js").then(({ SettingsDialog }) => SettingsDialog.of(this));
    this.dialog.catch(() => { this.dialog = null; }); // the next time it may come
    return this.dialog;
  }
}
