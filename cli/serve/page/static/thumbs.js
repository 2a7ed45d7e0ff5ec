/** Small copies of pictures; a click shows one in full. */

import { count, el } from "./dom.js";

export const thumbs = (pictures) => pictures.map((picture) => {
  const { name, width, height, small } = picture;
  const show = async () => (await import("./viewer.js")).show(picture);
  return el("button", { type: "button", class: "thumb", "aria-label": `Show ${name} in full`, title: `${name} \u00b7 ${count(width)} \u00d7 ${count(height)}`, onclick: show },
    el("img", { src: small, alt: name, width, height }));
});
