/** A question as a form: other words, other files and pictures. */

import { Chips } from "./attach.js";
import { chooser, el, iconButton } from "./dom.js";
import { model } from "./model.js";

/** Puts the form into the place of a message's body. Enter sends it: `onSend` gets the words, and the files and pictures. */
export function editForm({ node, body, element }, onSend) {
  const area = el("textarea", { class: "edit", "aria-label": "The question in other words" });
  area.value = node.content;
  const chips = new Chips(node, () => area.focus());
  const close = () => {
    form.replaceWith(body);
    element.focus();
  };
  const send = async () => {
    await chips.adding;
    if (!form.isConnected) return;
    const text = area.value.trim();
    form.replaceWith(body);
    if (text || chips.some) onSend(text, chips.given);
  };
  const { input, choose } = chooser((files) => chips.add(files));
  const form = el("form", { class: "editing", onsubmit: (event) => (event.preventDefault(), send()) },
    chips.element,
    area,
    el("div", { class: "choices" },
      el("button", { class: "button strong", type: "submit", text: "Send as a new branch" }),
      el("button", { class: "button", type: "button", text: "Cancel", onclick: close }),
      iconButton("attach", model.eyes ? "Add files or pictures" : "Add text files", () => choose()), input));
  form.attach = (files) => chips.add(files);
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    } else if (event.key === "Escape") {
      event.stopPropagation();
      close();
    }
  });
  body.replaceWith(form);
  area.focus();
  area.setSelectionRange(area.value.length, area.value.length);
}
