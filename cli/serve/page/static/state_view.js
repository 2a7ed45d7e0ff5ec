/** Pieces that the page of the server's state is made of: figures with their course, bars of several parts, numbers. */

import { count, el, svg } from "./dom.js";

const FEWEST = 30; // looks that a course has room for
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export const make = (tag, className = "", text = "") => el(tag, { class: className || null, text: text || null });
export const rate = (n) => (n >= 9.95 || n === 0 ? count(n) : n.toFixed(1));

export function size(bytes) {
  let unit = 0;
  while (bytes >= 1000 && unit < UNITS.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${unit && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${UNITS[unit]}`;
}

export function duration(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

/** A number, what it is, and how it went. values: of the last looks, or null. */
export function figure(place, { label, value, unit = "", detail = "", values = null }) {
  const head = make("p", "figure-label", label);
  const number = make("p", "figure-value");
  number.append(make("span", "", value), unit ? make("small", "", ` ${unit}`) : "");
  place.replaceChildren(head, number, values ? course(values) : make("p", "note", detail));
  if (values && detail) place.append(make("p", "note", detail));
}

/** Values as a line, the newest at the right. */
function course(values) {
  const width = Math.max(FEWEST, values.length);
  const most = Math.max(1, ...values);
  const start = width - values.length;
  const points = values.map((value, index) => `${start + index},${(30 - (28 * value) / most).toFixed(1)}`);
  const shapes = points.length > 1 ? [
    svg("polygon", { points: `${start},31 ${points.join(" ")} ${width - 1},31` }), svg("polyline", { points: points.join(" ") }),
  ] : [];
  return svg("svg", { viewBox: `0 0 ${width - 1} 31`, preserveAspectRatio: "none", class: "course", "aria-hidden": "true" }, ...shapes);
}

/** Parts of a whole beside one another: [{kind, share, label}]; what is left is free. */
export function bar(parts, label) {
  const shown = el("div", { class: "bar", role: "img", "aria-label": label });
  for (const { kind, share } of parts) {
    const part = make("span", `part-${kind}`);
    part.style.setProperty("--share", Math.max(0, Math.min(1, share || 0)));
    shown.append(part);
  }
  return shown;
}

/** A name and its number, with the colour of its part where it has one. */
export function row(list, name, value, kind = "") {
  const term = make("dt", "", name);
  if (kind) term.prepend(make("span", `key part-${kind}`));
  list.append(term, make("dd", "", value));
}
