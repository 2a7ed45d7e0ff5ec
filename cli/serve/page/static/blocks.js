/** What of a growing markdown text is certain, so that only its end is drawn anew. */

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const OPENS = /^(?![ \t]|[-*+>|<]|\d+[.)]|\[)\S/; // a line that belongs to nothing before the blank line above it

/**
 * How many characters of `text`, from `from` on, are whole blocks that nothing behind them can change.
 *
 * They end with a blank line outside of code, followed by a line that begins a paragraph, a heading or code.
 * @returns {number} the end of the last of them; `from` where there is none
 */
export function certain(text, from = 0) {
  let end = from;
  let fence = null;
  let blank = false;
  let at = from;
  while (at < text.length) {
    const next = text.indexOf("\n", at);
    if (next === -1) break; // the line is not complete
    const line = text.slice(at, next);
    const mark = FENCE.exec(line)?.[1];
    if (fence !== null) {
      if (mark && mark[0] === fence[0] && mark.length >= fence.length && line.trim() === mark) fence = null;
    } else {
      if (blank && OPENS.test(line)) end = at;
      if (mark) fence = mark;
    }
    blank = fence === null && line.trim() === "";
    at = next + 1;
  }
  return end;
}
