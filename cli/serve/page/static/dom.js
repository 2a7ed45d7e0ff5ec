/** Elements made by script: the policy of the page allows neither markup in strings nor inline styles. */

const SVG = "http://www.w3.org/2000/svg";

/** An element. props: attributes; `on` + event: a listener; `text`: its text. In them and of the children null, undefined and false are left out. */
export function el(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** The same for the elements of drawings. */
export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

const isSet = (value) => value !== null && value !== undefined && value !== false;

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props).filter(([, given]) => isSet(given))) {
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter(isSet));
  return element;
}

/** The element with this id, which the page has. */
export const byId = (id) => document.getElementById(id);

// strokes on a grid of 24
const ICONS = {
  add: "M12 5v14M5 12h14",
  attach: "M20 11l-8 8a5 5 0 0 1-7-7l8-8a3.4 3.4 0 0 1 5 5l-8 8a1.7 1.7 0 0 1-2.5-2.5L15 7",
  branch: "M7 4v16M7 13c0-4 10-2 10-8M17 5l-3 3M17 5l3 3",
  bulb: "M9 18h6M10 21h4M8 14a6 6 0 1 1 8 0c-.7.7-1 1.3-1 2H9c0-.7-.3-1.3-1-2z",
  camera: "M4 8h4l2-3h4l2 3h4v11H4zM12 10a3.3 3.3 0 1 0 0 6.6 3.3 3.3 0 0 0 0-6.6z",
  check: "M5 13l4 4L19 7",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  down: "M12 5v14M6 13l6 6 6-6",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  export: "M12 15V4M8 8l4-4 4 4M4 15v5h16v-5",
  go: "M5 12h14M13 6l6 6-6 6",
  help: "M9.5 9a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1.9-1.1 1.8M12 17v.01M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z",
  history: "M4 6h16M4 12h16M4 18h10",
  import: "M12 4v11M8 11l4 4 4-4M4 15v5h16v-5",
  left: "M15 6l-6 6 6 6",
  picture: "M4 5h16v14H4zM4 17l5-5 4 4 3-3 4 4M15.5 9v.01",
  probabilities: "M4 20V10M9.3 20V4M14.6 20v-7M20 20v-4",
  remove: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  retry: "M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6",
  right: "M9 6l6 6-6 6",
  send: "M12 19V5M6 11l6-6 6 6",
  server: "M4 4h16v7H4zM4 13h16v7H4zM8 7.5v.01M8 16.5v.01",
  settings: "M4 7h9M17 7h3M13 5v4M4 17h3M11 17h9M9 15v4",
  stop: "M7 7h10v10H7z",
  tool: "M14 7a4 4 0 0 1 5-3l-2.5 2.5 1 1L20 5a4 4 0 0 1-5 5l-7.5 8a2 2 0 0 1-3-3L13 8",
  tree: "M6 4v16M6 9h6a3 3 0 0 1 3 3v0M6 16h12M18 12h-3",
};

/** A drawing beside words, or in a button that has a name. */
export function icon(name) {
  return svg("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}

/** A button with a drawing; `label`: its name, shown where `wide` says so. */
export function iconButton(name, label, onclick, { wide = false, ...props } = {}) {
  const looks = wide ? { class: "button" } : { class: "button bare", title: label, "aria-label": label };
  return el("button", { type: "button", ...looks, onclick, ...props }, icon(name), wide && el("span", { text: label }));
}

/** For screen readers: once, when something has begun or ended, not token by token. */
export function said(text) {
  byId("spoken").textContent = text;
  byId("spoken").classList.add("unseen");
}

/** Lets somebody choose files, which `onFiles` gets: {input: to put anywhere, choose(accept, capture): asks}. */
export function chooser(onFiles) {
  const input = el("input", { type: "file", multiple: true, hidden: true, onchange: async () => {
    await onFiles(input.files);
    input.value = ""; // the same one may be chosen again
  } });
  const choose = (accept = "", capture = false) => {
    input.accept = accept;
    input.toggleAttribute("capture", capture);
    input.click();
  };
  return { input, choose };
}

/** The rules of a part of the page that is loaded when it is wanted. */
export const style = (name) => new Promise((done, failed) => {
  const href = new URL(`${name}.css`, import.meta.url);
  document.head.append(el("link", { rel: "stylesheet", href, onload: done, onerror: () => failed(new Error(`${name}.css did not come`)) }));
});

/** 1204 as "1 204", with narrow spaces that do not break. */
export const count = (n) => String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, "\u202f");

/** "1 token", "14 tokens". */
export const tokens = (n) => `${count(n)} ${n === 1 ? "token" : "tokens"}`;
