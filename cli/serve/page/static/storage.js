/** Texts kept in this browser. Where storage is refused, nothing is kept, and nothing fails. */

/** The text kept under this name, or null. */
export function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/** Keeps `text`; null removes what was kept. */
export function store(name, text) {
  try {
    if (text === null) localStorage.removeItem(name);
    else localStorage.setItem(name, text);
  } catch {
    // refused
  }
}
