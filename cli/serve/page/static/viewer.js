/** The dialog that shows a picture in full. */

import { count, el, iconButton, style } from "./dom.js";
import { urlOf } from "./pictures.js";

let parts = null;

export async function show({ id, name, width, height, small }) {
  const url = await urlOf(id);
  parts ??= style("dialogs").then(made);
  const { dialog, title, note, image } = await parts;
  title.textContent = name;
  note.textContent = `${count(width)} \u00d7 ${count(height)}${url ? "" : ": this browser has only a small copy of it left"}`;
  for (const [key, value] of Object.entries({ src: url ?? small, alt: name, width, height })) image.setAttribute(key, value);
  dialog.showModal();
}

function made() {
  const title = el("h2", { id: "viewer-title", dir: "auto" });
  const [note, image] = [el("p", { class: "note" }), el("img")];
  const dialog = el("dialog", { class: "viewer", "aria-labelledby": title.id, onclick: ({ target }) => target === dialog && dialog.close() },
    el("header", {}, title, note, iconButton("close", "Close", () => dialog.close())), image);
  document.body.append(dialog);
  return { dialog, title, note, image };
}
