/** Tokens of an answer, and the beginning of another that one of their alternatives makes. */

const encoder = new TextEncoder();

const bytesOf = (token) => token.bytes ?? [...encoder.encode(token.token)];

/**
 * The tokens that are the text of an answer: not its thoughts, nor what ended it.
 * @returns {{from: number, list: Object[]}} `from`: how many come before them
 */
export function textTokens(node) {
  const all = node.logprobs ?? [];
  const kinds = all.map((token) => token.kind ?? "text");
  const from = kinds.indexOf("text");
  return from === -1 ? { from: 0, list: [] } : { from, list: all.slice(from) };
}

/**
 * The text before a token and then an alternative: how another answer begins.
 * @param {Object} node an answer with logprobs
 * @param {number} index of a token in its logprobs
 * @param {Object} alternative one of its top_logprobs
 * @returns {{content: string, logprobs: Object[]}} null where the alternative is no text by itself (part of a character)
 */
export function beginning(node, index, alternative) {
  const { from } = textTokens(node);
  const before = node.logprobs.slice(0, index);
  const bytes = [...before.slice(from), alternative].flatMap(bytesOf);
  const { top_logprobs } = node.logprobs[index];
  try {
    const content = new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(bytes));
    return { content, logprobs: [...before, { ...alternative, top_logprobs, kind: "text" }] };
  } catch {
    return null;
  }
}
