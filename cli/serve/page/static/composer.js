/** Where the next question is written; while an answer is drawn, its button stops it. */

import { byId, icon } from "./dom.js";

export class Composer {
  /** @param {Object} doing {send(text), stop(), changed(text), before()}: `before`: the key up in an empty field */
  constructor(doing) {
    this.area = byId("question");
    this.form = byId("composer");
    this.button = byId("send");
    this.hint = byId("hint");
    this.doing = doing;
    this.running = null;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.area.addEventListener("input", () => {
      this.#resize();
      doing.changed(this.area.value);
    });
    this.area.addEventListener("keydown", (event) => this.#key(event));
    this.setRunning(false);
  }

  #key(event) {
    // where fingers write, Enter is a new line
    const enters = event.key === "Enter" && !event.shiftKey && !event.isComposing && !matchMedia("(pointer: coarse)").matches;
    if (enters) {
      event.preventDefault();
      if (!this.running) this.#send();
    } else if (event.key === "ArrowUp" && !event.altKey && this.area.value === "") {
      event.preventDefault();
      this.doing.before();
    }
  }

  #send() {
    if (this.running) {
      this.doing.stop();
      return;
    }
    const text = this.area.value.trim();
    if (!text) return;
    this.set("");
    this.doing.send(text);
  }

  /** Text in the field. */
  set(text) {
    this.area.value = text;
    this.#resize();
  }

  get text() {
    return this.area.value.trim();
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
  }

  focus() {
    this.area.focus();
  }

  #resize() {
    // through the object model, which the policy allows
    this.area.style.height = "auto";
    this.area.style.height = `${this.area.scrollHeight + 2}px`;
  }
}
