/** What the first bytes of a picture say: its kind, and whether it moves. */

/**
 * @param {Uint8Array} bytes
 * @returns {{type: string, moves: boolean}} type: "" for kinds that are written anew before they are sent
 */
export function kindOf(bytes) {
  const has = (at, text) => [...text].every((letter, index) => bytes[at + index] === letter.charCodeAt(0));
  if (has(0, "\x89PNG")) return { type: "image/png", moves: movingPng(bytes, has) };
  if (has(0, "\xff\xd8\xff")) return { type: "image/jpeg", moves: false };
  if (has(0, "RIFF") && has(8, "WEBP")) return { type: "image/webp", moves: has(12, "VP8X") && (bytes[20] & 2) > 0 };
  return { type: "", moves: has(0, "GIF8") ? movingGif(bytes) : has(4, "ftypavis") };
}

/** Whether a chunk before the pixels says that there are more frames. */
function movingPng(bytes, has) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 8; at + 12 <= bytes.length && !has(at + 4, "IDAT"); at += 12 + view.getUint32(at)) {
    if (has(at + 4, "acTL")) return view.getUint32(at + 8) > 1;
  }
  return false;
}

/** Whether there is a second frame. */
function movingGif(bytes) {
  const colours = (flags) => (flags & 0x80 ? 3 << ((flags & 7) + 1) : 0); // bytes of a table
  let frames = 0;
  let at = 13 + colours(bytes[10]);
  while (bytes[at] === 0x21 || bytes[at] === 0x2c) {
    const isFrame = bytes[at] === 0x2c;
    if (isFrame && ++frames > 1) return true;
    at += isFrame ? 11 + colours(bytes[at + 9]) : 2; // to the blocks of its data
    while (bytes[at] > 0) at += bytes[at] + 1;
    at += 1;
  }
  return false;
}
