/** Where the next question is written; while an answer is drawn, its button stops it, and Enter sends the text later. */

import { byId, el, icon, iconButton } from "./dom.js";

const withFingers = () => matchMedia("(pointer: coarse)").matches;

export class Composer {
  /** @param {Object} doing {send(text, files), stop(), before(), context()}: `before`: the key up in an empty field; `context`: the model's, in tokens */
  constructor(doing) {
    this.area = byId("question");
    this.button = byId("send");
    this.doing = doing;
    this.running = null;
    this.waits = false; // the text is sent when the answer has ended
    this.chips = null; // files that go with it, once there was one
    this.form = byId("composer");
    const file = el("input", { type: "file", multiple: true, hidden: true, onchange: async () => {
      await this.#attach(file.files);
      file.value = ""; // the same one may be chosen again
    } });
    this.area.before(iconButton("attach", "Attach text files", () => file.click()), file);
    for (const name of ["dragover", "dragleave", "drop"]) addEventListener(name, (event) => this.#given(event, event.dataTransfer));
    this.area.addEventListener("paste", (event) => this.#given(event, event.clipboardData));
    this.form.addEventListener("submit", (event) => {
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
      else this.#wait(this.#has());
    } else if (event.key === "ArrowUp" && !event.altKey && this.area.value === "") {
      event.preventDefault();
      this.doing.before();
    }
  }

  #has() {
    return this.area.value.trim() !== "" || this.chips?.files.length > 0;
  }

  /** Files over the page, dropped, or pasted; a text with a picture of itself is pasted as text. */
  #given(event, { files, types }) {
    if (!types.includes("Files") || types.includes("text/html")) return;
    event.preventDefault();
    const isOver = event.type === "dragover";
    this.form.classList.toggle("over", isOver);
    if (files.length && !isOver) this.#attach(files);
  }

  async #attach(files) {
    const given = [...files]; // the browser's list is emptied
    if (!this.chips) {
      const { Chips } = await import("./attach.js");
      this.chips ??= new Chips();
      this.form.prepend(this.chips.element);
    }
    await this.chips.add(given, this.doing.context());
    this.focus();
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
    if (!this.#has()) return;
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
