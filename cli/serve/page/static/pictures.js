/**
 * Pictures of questions: read and scaled down here, and kept in a database of their own, as data URLs.
 *
 * A message has of each {id, name, width, height, small}; `small`: a copy for lists. An id begins with the time it was made at.
 */

import { ApiError } from "./api.js";
import { openStore } from "./chat_store.js";
import { DRAFT, storedJson } from "./storage.js";
import { newId } from "./tree.js";
import { kindOf } from "./picture_kind.js";

const LONGEST = 2048; // pixels of a side; larger pictures are scaled down
const SMALL = 256;
const MOST_AS_IT_IS = 2e6; // bytes of a file that is sent unchanged, and of a PNG made here
const OLD = 7 * 86_400_000; // milliseconds; younger ones may belong to what somebody writes in another tab

const store = openStore("hybrid-pictures");
const unkept = new Map(); // id -> data URL of what the browser did not keep
let swept = null;

/** An id that no other picture has. */
export const madeId = () => `${Date.now()}-${newId()}`;

/** A picture's file as {picture, trouble}; trouble: why it is not kept, or null. Error: it is refused. */
export async function read(file) {
  swept ??= sweep().catch(() => {});
  const bytes = new Uint8Array(await file.arrayBuffer());
  const { type, moves } = kindOf(bytes);
  if (moves) throw new Error("it moves: give one of its frames");
  const bitmap = await createImageBitmap(file, { imageOrientation: "from-image" }).catch(() => null);
  if (!bitmap) throw new Error("this browser cannot read it as a picture");
  const fits = Math.max(bitmap.width, bitmap.height) <= LONGEST && bytes.length <= MOST_AS_IT_IS;
  const { width, height, blob } = type && fits ? { width: bitmap.width, height: bitmap.height, blob: new Blob([bytes], { type }) } : await drawn(bitmap, LONGEST, type === "image/jpeg");
  const small = await drawn(bitmap, SMALL, true);
  bitmap.close();
  const id = madeId();
  const picture = { id, name: file.name.replace(/\s+/g, " ").slice(0, 200) || "picture", width, height, small: await asUrl(small.blob) };
  return { picture, trouble: await keep([{ id, url: await asUrl(blob) }]) };
}

/** Draws a picture on white, with sides of at most `most` pixels: {width, height, blob}. A PNG that would be large is a JPEG. */
async function drawn(bitmap, most, asJpeg) {
  const scale = Math.min(1, most / Math.max(bitmap.width, bitmap.height));
  const [width, height] = [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.round(scale * side)));
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d");
  Object.assign(context, { fillStyle: "#fff", imageSmoothingQuality: "high" });
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, 0, 0, width, height);
  const blobOf = (type) => new Promise((done) => canvas.toBlob(done, type, 0.9));
  let blob = asJpeg ? null : await blobOf("image/png");
  if (!blob || blob.size > MOST_AS_IT_IS) blob = await blobOf("image/jpeg");
  if (!blob) throw new Error("it is too large for this browser");
  return { width, height, blob };
}

const asUrl = (blob) => new Promise((done, failed) => {
  const reader = Object.assign(new FileReader(), { onload: () => done(reader.result), onerror: () => failed(reader.error) });
  reader.readAsDataURL(blob);
});

/** Keeps [{id, url}], all or none: null, or why the browser does not keep them. They can be used here all the same. */
async function keep(records) {
  try {
    await (await store).put(records);
    return null;
  } catch (error) {
    for (const { id, url } of records) unkept.set(id, url);
    return error?.name === "QuotaExceededError" ? "the browser has no room left" : error?.message || "the browser refuses it";
  }
}

/** Keeps [{id, url}] or fails. */
export const put = async (records) => (await store).put(records);

/** The data URL; undefined: it is not here. */
export const urlOf = async (id) => unkept.get(id) ?? (await (await store).get(id))?.url;

/** The data URLs of pictures that are here, by id. */
export async function known(pictures) {
  const found = await Promise.all(pictures.map(async ({ id }) => [id, await urlOf(id)]));
  return new Map(found.filter(([, url]) => url));
}

/** The data URLs of pictures, by id. ApiError: one is not here. */
export async function urlsOf(pictures) {
  const found = await known(pictures);
  const lost = pictures.find(({ id }) => !found.has(id));
  if (lost) throw new ApiError(`${lost.name} is no longer in this browser. Edit its question: remove the picture, or add it again.`);
  return found;
}

/** Removes pictures that are in no conversation and not in this tab's draft: those of the set `gone`, else all that are old. */
export async function sweep(gone = null) {
  const chats = await openStore();
  if (!chats.lasting) return;
  const used = new Set((storedJson(DRAFT, "sessionStorage")?.pictures ?? []).map(({ id }) => id));
  await chats.each(({ nodes }) => nodes.forEach(({ pictures = [] }) => pictures.forEach(({ id }) => used.add(id))));
  const isGone = (id) => !used.has(id) && (gone ? gone.has(id) : Date.now() - parseInt(id) > OLD);
  for (const id of (await (await store).keys()).filter(isGone)) await (await store).remove(id);
}
