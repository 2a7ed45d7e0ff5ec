/** Where the next question is written; while an answer is drawn, its button stops it, and Enter sends the text later. */

import { byId, icon } from "./dom.js";

const withFingers = () => matchMedia("(pointer: coarse)").matches;

export class Composer {
  /** @param {Object} doing {send(text), stop(), before()}: `before`: the key up in an empty field */
  constructor(doing) {
    this.area = byId("question");
    this.button = byId("send");
    this.doing = doing;
    this.running = null;
    this.waits = false; // the text is sent when the answer has ended
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.area.addEventListener("input", () => (this.#resize(), this.#wait(false)));
    this.area.addEventListener("keydown", (event) => this.#key(event));
    this.setRunning(false);
  }

  #key(event) {
    // where fingers write, Enter is a new line
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !withFingers()) {
      event.preventDefault();
      if (!this.running) this.#send();
      else this.#wait(this.area.value.trim() !== "");
    } else if (event.key === "ArrowUp" && !event.altKey && this.area.value === "") {
      event.preventDefault();
      this.doing.before();
    }
  }

  #wait(waits) {
    if (this.waits === waits) return;
    this.waits = waits;
    byId("composer-note").hidden = !waits;
    if (waits) this.doing.waits();
  }

  #send() {
    if (this.running) {
      this.doing.stop();
      return;
    }
    const text = this.area.value.trim();
    if (!text) return;
    this.area.value = "";
    this.#resize();
    this.#wait(false);
    this.doing.send(text);
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
