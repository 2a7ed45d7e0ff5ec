/** What the server has said of the model: its name, above its answers, and what it takes. */

/** context: in tokens, 0: not yet known; eyes: whether it takes pictures */
export const model = { context: 0, eyes: false };

let name = "Answer"; // until the server has said it

/** Puts the name, or what is known instead, into a heading. */
export function named(heading) {
  heading.classList.add("model-name");
  heading.textContent = name;
  return heading;
}

/** From now on, and in what is shown already. */
export function setName(given) {
  name = given;
  for (const heading of document.querySelectorAll(".model-name")) heading.textContent = name;
}
