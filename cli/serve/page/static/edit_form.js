/** A question as a form: other words, fewer files. */

import { Chips } from "./attach.js";
import { el } from "./dom.js";

/** Puts the form into the place of a message's body. Enter sends it: `onSend` gets the words and the files. */
export function editForm({ node, body, element }, onSend) {
  const area = el("textarea", { class: "edit", "aria-label": "The question in other words" });
  area.value = node.content;
  const chips = new Chips(node.files);
  const close = () => {
    form.replaceWith(body);
    element.focus();
  };
  const send = () => {
    const text = area.value.trim();
    form.replaceWith(body);
    if (text || chips.files.length) onSend(text, chips.files);
  };
  const form = el("form", { class: "editing", onsubmit: (event) => (event.preventDefault(), send()) },
    chips.element,
    area,
    el("div", { class: "choices" },
      el("button", { class: "button strong", type: "submit", text: "Send as a new branch" }),
      el("button", { class: "button", type: "button", text: "Cancel", onclick: close })));
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
