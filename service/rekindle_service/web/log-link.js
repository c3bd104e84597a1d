/**
 * The part of the page's address that names a place in a log: `#log/RANK/STREAM/ATTEMPT/BYTE`, or `end` for the byte.
 * Pure.
 *
 * @typedef {{rank: number, stream: string, attempt: number, offset: number}} Place
 */

const FORM = /^#log\/(\d{1,7})\/(stdout|stderr)\/(\d{1,7})\/(\d{1,15}|end)$/;
/** Behind any log. */
export const END = Number.MAX_SAFE_INTEGER;

/** @param {string} stream */
export const otherStream = (stream) => (stream === "stdout" ? "stderr" : "stdout");

/** @param {Place} place */
export function linkTo({ rank, stream, attempt, offset }) {
  return `#log/${rank}/${stream}/${attempt}/${offset === END ? "end" : offset}`;
}

/**
 * @param {string} hash of an address
 * @returns {Place | null} null where it names something else
 */
export function placeOf(hash) {
  const parts = FORM.exec(hash);
  if (!parts) return null;
  return { rank: Number(parts[1]), stream: parts[2], attempt: Number(parts[3]), offset: parts[4] === "end" ? END : Number(parts[4]) };
}
