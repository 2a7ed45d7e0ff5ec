/** Texts kept in this browser. Where storage is refused, nothing is kept, and nothing fails. */

export const DRAFT = "hybrid-draft"; // what is written but not sent, until the browser's tab is closed: {text, files, pictures}

/** The text kept under this name, or null; `place`: or "sessionStorage", of one tab. */
export function stored(name, place = "localStorage") {
  try {
    return window[place].getItem(name);
  } catch {
    return null;
  }
}

/** The value kept as JSON under this name; null: there is none, or somebody has spoiled it. */
export function storedJson(name, place) {
  try {
    return JSON.parse(stored(name, place));
  } catch {
    return null;
  }
}

/** Keeps `text`; null removes what was kept. */
export function store(name, text, place = "localStorage") {
  try {
    if (text === null) window[place].removeItem(name);
    else window[place].setItem(name, text);
  } catch {
    // refused
  }
}
