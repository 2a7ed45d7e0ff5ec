/** Text files that go with a question: read, checked, and shown as chips until it is sent. */

import { fileLabel } from "./calls_view.js";
import { count, el, iconButton } from "./dom.js";

const PER_TOKEN = 4; // bytes; an English token has about as many

export class Chips {
  /** @param {Object[]} files [{name, text}] to begin with */
  constructor(files = []) {
    this.element = el("div", { class: "chips" });
    this.#show([...files]);
  }

  /** Adds text files that the browser gives; says why it refuses others. context: tokens, which bound the size */
  async add(given, context) {
    const refused = [];
    for (const file of given) {
      try {
        this.files.push(await read(file, new Blob(this.files.map(({ text }) => text)).size, PER_TOKEN * context));
      } catch (error) {
        refused.push(`${file.name}: ${error.message}.`);
      }
    }
    this.#show(this.files, refused.join(" "));
  }

  /** The files, which are no longer here. */
  take() {
    const { files } = this;
    this.#show([]);
    return files;
  }

  #show(files, trouble = "") {
    this.files = files;
    const remove = (file) => this.#show(files.filter((each) => each !== file));
    this.element.replaceChildren(
      ...files.map((file) => el("span", { class: "chip" },
        el("span", { dir: "auto", text: fileLabel(file) }), iconButton("close", `Remove ${file.name}`, () => remove(file)))),
      el("p", { class: "note warns", role: "alert", text: trouble }));
  }
}

async function read(file, used, most) {
  if (used + file.size > most) {
    throw new Error(`${count(file.size)} bytes, but the files of a question have at most ${count(most)} together, ${PER_TOKEN} per token of the context`);
  }
  const text = await file.arrayBuffer().then((bytes) => new TextDecoder("utf-8", { fatal: true }).decode(bytes)).catch(() => "\0");
  if (text.includes("\0")) throw new Error("not a text file in UTF-8");
  return { name: file.name.replace(/\s+/g, " ").slice(0, 200), text };
}
