/** Where the next question is written; while an answer is drawn, its button stops it, and Enter sends the text later. */

import { byId, chooser, icon, iconButton, said } from "./dom.js";
import { entryOf, isAway, model, several } from "./model.js";
import { DRAFT, store, storedJson } from "./storage.js";

const withFingers = () => matchMedia("(pointer: coarse)").matches;

export class Composer {
  /** @param {Object} doing {send(text, {files, pictures}), stop(), before()}: `before`: the key up in an empty field */
  constructor(doing) {
    this.area = byId("question");
    this.button = byId("send");
    this.doing = doing;
    this.running = null;
    this.waits = false; // the text is sent when the answer has ended
    this.chips = null; // files and pictures that go with it, once there was one
    this.form = byId("composer");
    this.form.attach = (files) => this.#attach(files);
    const { input, choose } = chooser((files) => this.#attach(files));
    this.eyes = [iconButton("picture", "Attach pictures", () => choose("image/*"))];
    if (withFingers()) this.eyes.push(iconButton("camera", "Take a picture", () => choose("image/*", true)));
    this.area.before(iconButton("attach", "Attach text files", () => choose()), ...this.eyes, input);
    this.setModel();
    for (const name of ["dragover", "dragleave", "drop"]) addEventListener(name, (event) => this.#given(event, event.dataTransfer));
    addEventListener("paste", (event) => this.#given(event, event.clipboardData));
    for (const name of ["pagehide", "visibilitychange"]) addEventListener(name, () => this.#keep());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.area.addEventListener("input", () => (this.#resize(), this.#wait(false)));
    this.area.addEventListener("keydown", (event) => this.#key(event));
    this.setRunning(false);
    this.#restore();
  }

  #key(event) {
    // where fingers write, Enter is a new line
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !withFingers()) {
      event.preventDefault();
      if (!this.running) this.#send();
      else this.#wait(this.#has());
    } else if (event.key === "ArrowUp" && !event.altKey && this.area.value === "") {
      event.preventDefault();
      this.doing.before();
    }
  }

  #has() {
    return this.area.value.trim() !== "" || Boolean(this.chips?.some);
  }

  // --- files and pictures ---
  /** Another model answers, or more is known of it: whether it takes pictures, its state. */
  setModel() {
    for (const button of this.eyes) button.hidden = !model.eyes;
    this.form.classList.toggle("sees", model.eyes);
    this.form.classList.toggle("chooses", several());
    const menu = byId("model");
    menu.hidden = !several();
    menu.textContent = isAway(model.id) ? `${model.id} \u00b7 ${entryOf(model.id).state}` : model.id;
    menu.setAttribute("aria-label", `Model: ${menu.textContent}`);
  }

  /** Files over the page, dropped, or pasted: for a question that is edited, or the next one. A text with a picture of itself is a text. */
  #given(event, data) {
    const { files, types } = data;
    const isText = types.includes("text/html") && types.includes("text/plain");
    if (!types.includes("Files") || isText || event.target.closest?.("dialog")) return;
    event.preventDefault();
    const form = event.target.closest?.(".editing") ?? this.form;
    const isOver = event.type === "dragover";
    form.classList.toggle("over", isOver);
    if (files.length && !isOver) form.attach(files);
  }

  async #attach(files) {
    const given = [...files]; // the browser's list is emptied
    this.attaching = this.#withChips().then((chips) => chips.add(given));
    await this.attaching;
    this.focus();
  }

  async #withChips(draft = {}) {
    const { Chips } = await import("./attach.js");
    if (!this.chips) {
      this.chips = new Chips(draft, () => this.focus());
      this.form.prepend(this.chips.element);
    }
    return this.chips;
  }

  // --- what is not yet sent ---
  #keep() {
    const draft = { text: this.area.value, ...this.chips?.given };
    store(DRAFT, this.#has() ? JSON.stringify(draft) : null, "sessionStorage");
  }

  #restore() {
    const draft = storedJson(DRAFT, "sessionStorage");
    if (!draft) return;
    this.propose(draft.text ?? "");
    if (draft.files?.length || draft.pictures?.length) this.attaching = this.#withChips(draft);
  }

  #wait(waits) {
    if (this.waits === waits) return;
    this.waits = waits;
    byId("composer-note").hidden = !waits;
    if (waits) said("It is sent when the answer is complete; a change of the text prevents that.");
  }

  async #send() {
    if (this.running) {
      this.doing.stop();
      return;
    }
    await this.attaching?.catch(() => {}); // what was chosen a moment ago goes with it
    if (this.running || !this.#has()) return;
    const text = this.area.value.trim();
    this.area.value = "";
    this.#resize();
    this.#wait(false);
    this.doing.send(text, this.chips?.take());
  }

  /** Whether an answer is drawn in the conversation that is shown. */
  setRunning(running) {
    if (this.running === running) return;
    this.running = running;
    const label = running ? "Stop" : "Send";
    this.button.replaceChildren(icon(running ? "stop" : "send"));
    this.button.setAttribute("aria-label", label);
    this.button.title = running ? "Stop (Esc)" : "Send (Enter)";
    this.button.classList.toggle("stops", running);
    if (!running && this.waits) queueMicrotask(() => this.waits && !this.running && this.#send());
  }

  /** Puts a text into the field, to be sent or changed. */
  propose(text) {
    this.area.value = text;
    this.#resize();
    this.focus();
  }

  /** Not where that would open a keyboard over half of the screen. */
  focus() {
    if (!withFingers()) this.area.focus();
  }

  #resize() {
    // through the object model, which the policy allows
    this.area.style.height = "auto";
    this.area.style.height = `${this.area.scrollHeight + 2}px`;
  }
}
