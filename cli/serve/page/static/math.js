/** TeX in markdown, shown as it is written: no part of it is taken for emphasis, links or escapes. */

const MOST = 2_000; // characters of one formula
const BLOCK = new RegExp(`^ {0,3}(?:\\$\\$([^$]{1,${MOST}})\\$\\$|\\\\\\[([^]{1,${MOST}}?)\\\\\\])[ \\t]*(?:\\n|$)`);
const INLINE = new RegExp(`^(?:\\$\\$([^$\\n]{1,${MOST}})\\$\\$|\\\\\\(([^\\n]{1,${MOST}}?)\\\\\\))`);

// as HTML that shows them
export const coded = (character) => `&#${character.charCodeAt(0)};`;
export const escaped = (text) => text.replace(/[&<>"']/g, coded);

function extension(name, level, pattern, start, wrapped) {
  return {
    name,
    level,
    start: (source) => source.match(start)?.index,
    tokenizer(source) {
      const found = pattern.exec(source);
      return found ? { type: name, raw: found[0], text: (found[1] ?? found[2]).trim() } : undefined;
    },
    renderer: ({ text }) => wrapped(`<code class="math">${escaped(text)}</code>`),
  };
}

/** Extensions of marked. */
export const math = [
  extension("mathBlock", "block", BLOCK, /^ {0,3}(?:\$\$|\\\[)/m, (code) => `<p>${code}</p>`),
  extension("mathInline", "inline", INLINE, /\$\$|\\\(/, (code) => code),
];
