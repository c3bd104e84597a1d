/**
 * The fragment of the page's URL that points into a log: `#log/RANK/STREAM/ATTEMPT/BYTE`, or `end` for the byte. Pure.
 *
 * @typedef {{rank: number, stream: string, attempt: number, offset: number}} LogLocation
 */

const PATTERN = /^#log\/(\d{1,7})\/(stdout|stderr)\/(\d{1,7})\/(\d{1,15}|end)$/;
/** After the last byte of any log. */
export const END = Number.MAX_SAFE_INTEGER;

/** @param {string} stream */
export const otherStream = (stream) => (stream === "stdout" ? "stderr" : "stdout");

/** @param {LogLocation} location */
export const linkTo = ({ rank, stream, attempt, offset }) => `#log/${rank}/${stream}/${attempt}/${offset === END ? "end" : offset}`;

/** @param {string} hash of a URL @returns {LogLocation | null} null where it is no permalink */
export function parsePermalink(hash) {
  const parts = PATTERN.exec(hash);
  if (!parts) return null;
  return { rank: Number(parts[1]), stream: parts[2], attempt: Number(parts[3]), offset: parts[4] === "end" ? END : Number(parts[4]) };
}
