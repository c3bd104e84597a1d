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

// --- log time: Times of log lines: in the zone of the browser, which is named where they are shown. Pure but for the
// browser's zone.

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 1, hour12: false });
const zone = new Intl.DateTimeFormat("en", { timeZoneName: "longOffset" });

/** "14:05:09.3". @param {number} at seconds since the epoch */
const clockTime = (at) => clock.format(at * 1000);

/** "UTC+01:00", with the offset of that moment. @param {number} at seconds since the epoch */
export function zoneAt(at) {
  const name = zone.formatToParts(at * 1000).find(({ type }) => type === "timeZoneName")?.value ?? "GMT";
  return name.replace("GMT", "UTC");
}

/** "2026-11-23 14:05:09.3 UTC+01:00". @param {number} at seconds since the epoch */
function fullTime(at) {
  const local = new Date(at * 1000 - new Date(at * 1000).getTimezoneOffset() * 60_000);
  return `${local.toISOString().slice(0, 10)} ${clockTime(at)} ${zoneAt(at)}`;
}

/** Mark a row with its time; without one nothing is shown. @param {HTMLElement} row @param {number | null} at seconds since the epoch */
export function setRowTime(row, at) {
  if (at === null) return;
  row.dataset.at = String(at);
  row.dataset.time = clockTime(at);
  row.title = fullTime(at);
}
