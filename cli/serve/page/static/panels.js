/** The panels beside the conversation. On a small screen they lie above it, one at a time, and go when they have served. */

import { byId, iconButton } from "./dom.js";

const narrow = matchMedia("(max-width: 62rem)");

export class Panels {
  /** @param {Object} of by the id of a panel {label, place: of its button, opened(): puts the focus into it} */
  constructor(of) {
    this.of = of;
    for (const [name, { label, place }] of Object.entries(of)) {
      const toggle = iconButton(name, label, () => this.toggle(name), { "data-do": name, "aria-controls": name });
      byId(place).prepend(toggle);
      byId(`${name}-close`).append(iconButton("close", "Close", () => this.toggle(name)));
      this.of[name].toggle = toggle;
      this.#put(name, !byId(name).hidden && !narrow.matches);
    }
    byId("chat").addEventListener("pointerdown", () => this.served());
    narrow.addEventListener("change", () => this.served());
  }

  #put(name, open) {
    byId(name).hidden = !open;
    this.of[name].toggle.setAttribute("aria-expanded", String(open));
  }

  /** What opens takes the focus into it, and gives it back when it is closed. */
  toggle(name) {
    const open = byId(name).hidden;
    if (open) this.served();
    this.#put(name, open);
    if (open) this.of[name].opened();
    else this.of[name].toggle.focus();
  }

  /** Whether what lay above the conversation has gone. */
  served() {
    const open = Object.keys(this.of).filter((name) => narrow.matches && !byId(name).hidden);
    for (const name of open) this.#put(name, false);
    return open.length > 0;
  }
}
