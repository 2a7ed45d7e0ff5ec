/** Text files and pictures that go with a question: read, checked, and shown as chips until it is sent. */

import { fileLabel } from "./calls_view.js";
import { count, el, iconButton, said } from "./dom.js";
import { model } from "./model.js";
import { thumbs } from "./thumbs.js";

const PER_TOKEN = 4; // bytes; an English token has about as many

const isPicture = ({ type }) => type.startsWith("image/") && type !== "image/svg+xml";

export class Chips {
  /**
   * @param {Object} given {files: [{name, text}], pictures} to begin with
   * @param {function(): void} after moves the focus when the last one has been removed
   */
  constructor({ files = [], pictures = [] }, after) {
    this.after = after;
    this.note = el("p", { class: "note warns", role: "alert" });
    this.element = el("div", { class: "chips" }, this.note);
    this.files = [...files];
    this.pictures = [...pictures];
    this.#show();
  }

  get some() {
    return this.files.length + this.pictures.length > 0;
  }

  /** What is here. */
  get given() {
    return { files: this.files, pictures: this.pictures };
  }

  /** Adds files that the browser gives, one after the other; says why it refuses others. */
  add(given) {
    this.adding = this.#add([...given], this.adding);
    return this.adding;
  }

  async #add(given, before) {
    await before;
    const [troubles, names] = [[], []];
    const trouble = (file, message) => troubles.push(`${file.name}: ${message}.`);
    for (const file of given) {
      try {
        if (isPicture(file)) await this.#picture(file, trouble);
        else this.files.push(await textFile(file, new Blob(this.files.map(({ text }) => text)).size));
        names.push(file.name);
      } catch ({ message }) {
        trouble(file, message);
      }
      this.#show(troubles.join(" "));
    }
    if (names.length) said(`With the question: ${names.join(", ")}.`);
  }

  async #picture(file, trouble) {
    if (!model.eyes) throw new Error("this model takes no pictures");
    const { read } = await import("./pictures.js");
    const { picture, trouble: unkept } = await read(file);
    this.pictures.push(picture);
    if (unkept) trouble(file, `it can be sent, but is not kept: ${unkept}`);
  }

  /** What is here, which it no longer is. */
  take() {
    const { given } = this;
    [this.files, this.pictures] = [[], []];
    this.#show();
    return given;
  }

  #show(trouble = "") {
    const chip = (kind, one, label) => el("span", { class: `chip ${kind}` }, label, iconButton("close", `Remove ${one.name}`, () => this.#remove(kind, one)));
    for (const each of this.element.querySelectorAll(".chip")) each.remove();
    this.note.before(
      ...this.pictures.map((picture) => chip("pictures", picture, thumbs([picture])[0])),
      ...this.files.map((file) => chip("files", file, el("span", { dir: "auto", text: fileLabel(file) }))));
    if (this.note.textContent !== trouble) this.note.textContent = trouble; // it is read aloud when it changes
  }

  #remove(kind, one) {
    const buttons = () => [...this.element.querySelectorAll(".bare")];
    const at = buttons().indexOf(document.activeElement);
    this[kind] = this[kind].filter((each) => each !== one);
    this.#show();
    const left = buttons();
    if (left.length) left[Math.min(Math.max(at, 0), left.length - 1)].focus();
    else this.after();
  }
}

async function textFile(file, used) {
  const most = PER_TOKEN * model.context;
  if (used + file.size > most) {
    throw new Error(`${count(file.size)} bytes, but the files of a question have at most ${count(most)} together, ${PER_TOKEN} per token of the context`);
  }
  const text = await file.arrayBuffer().then((bytes) => new TextDecoder("utf-8", { fatal: true }).decode(bytes)).catch(() => "\0");
  if (text.includes("\0")) throw new Error("not a text file in UTF-8");
  return { name: file.name.replace(/\s+/g, " ").slice(0, 200), text };
}
