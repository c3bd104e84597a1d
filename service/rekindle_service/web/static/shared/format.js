/**
 * Values as people read them. Pure; a missing value is always an en dash, so that columns keep their width.
 *
 * @import { JobPublic as Job } from "./api-types.d.ts"
 */

export const NONE = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** @template Value @param {Value | null | undefined} value @param {(value: Value) => string} text */
const orNone = (value, text) => (value === null || value === undefined ? NONE : text(value));

/** @param {number | null | undefined} value */
export const count = (value) => orNone(value, (number) => whole.format(number));

/** "1 step", "3 steps". @param {number} number @param {string} noun @param {string} [nouns] */
export const counted = (number, noun, nouns = `${noun}s`) => `${count(number)} ${number === 1 ? noun : nouns}`;

/** Four significant digits. @param {number} value */
export const significant = (value) => (Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4))));

/**
 * A duration in its two largest units: "8 s", "4 min 05 s", "2 h 13 min", "3 d 4 h".
 *
 * @param {number | null | undefined} seconds
 */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  const total = Math.max(0, Math.round(seconds));
  const [days, hours, minutes] = [Math.floor(total / 86400), Math.floor(total / 3600) % 24, Math.floor(total / 60) % 60];
  const two = (/** @type {number} */ part) => String(part).padStart(2, "0");
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${two(minutes)} min`;
  if (minutes) return `${minutes} min ${two(total % 60)} s`;
  return `${total} s`;
}

/**
 * A duration in its largest unit, for narrow columns: "8 s", "4 min", "2 h", "3 d".
 *
 * @param {number | null | undefined} seconds
 */
export const brief = (seconds) => duration(seconds).split(" ").slice(0, 2).join(" ");

/**
 * Seconds from an ISO 8601 time to `now` (milliseconds); null where there is no time.
 *
 * @param {string | null | undefined} time @param {number} [now]
 */
export function secondsSince(time, now = Date.now()) {
  const at = time ? Date.parse(time) : NaN;
  return Number.isNaN(at) ? null : (now - at) / 1000;
}

/**
 * Seconds between two ISO 8601 times; the second defaults to now.
 *
 * @param {string | null | undefined} from @param {string | null | undefined} to
 */
export function secondsBetween(from, to) {
  return secondsSince(from, to ? Date.parse(to) : Date.now());
}

/** "5 min ago". @param {string | null | undefined} time */
export const ago = (time) => `${brief(secondsSince(time))} ago`;

/** @param {string | null | undefined} time @param {Intl.DateTimeFormatOptions} style */
function dateText(time, style) {
  const at = time ? new Date(time) : null;
  return at && !Number.isNaN(at.getTime()) ? at.toLocaleString(undefined, { ...style, hourCycle: "h23" }) : NONE;
}

/** @param {string | null | undefined} time */
export const localTime = (time) => dateText(time, { dateStyle: "medium", timeStyle: "medium" });

/** @param {string | null | undefined} time */
export const timeOfDay = (time) => dateText(time, { hour: "numeric", minute: "numeric", second: "numeric", hour12: false });

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = value < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(value) / 3));
  return `${(value / 1000 ** power).toFixed(power === 0 ? 0 : 1)} ${units[power]}`;
}

/** @param {number | null | undefined} fraction */
export const percent = (fraction) => orNone(fraction, (share) => `${Math.floor(share * 1000) / 10} %`);

/** @param {number | null | undefined} stepsPerSecond */
export const speed = (stepsPerSecond) =>
  orNone(stepsPerSecond, (rate) => (rate >= 1 || rate === 0 ? `${rate.toFixed(1)} steps/s` : `${(1 / rate).toFixed(1)} s/step`));

/** "3 / 10", "3", or a dash. @param {number | null | undefined} done @param {number | null | undefined} total */
export function outOf(done, total) {
  if (done === null || done === undefined) return NONE;
  return total === null || total === undefined ? count(done) : `${count(done)} / ${count(total)}`;
}

/** "2", or "1–4" while the number is not decided. @param {Job} job */
export function ranksText(job) {
  if (job.world_size) return count(job.world_size);
  return job.ranks.min === job.ranks.max ? count(job.ranks.max) : `${job.ranks.min}–${job.ranks.max}`;
}

/** "Rank 1", "Ranks 0, 2–15". @param {number[]} ranks ascending */
export function rankNames(ranks) {
  /** @type {[number, number][]} */
  const runs = [];
  for (const rank of ranks) {
    const last = runs.at(-1);
    if (last && last[1] === rank - 1) last[1] = rank;
    else runs.push([rank, rank]);
  }
  const parts = runs.map(([first, last]) => (first === last ? `${first}` : `${first}${last - first > 1 ? "–" : ", "}${last}`));
  return `${ranks.length === 1 ? "Rank" : "Ranks"} ${parts.join(", ")}`;
}

const MINUTE = 60_000; // milliseconds
const DAY = 1440 * MINUTE;

/**
 * When a job starts, an estimate: "14:05" within a day, "Tue 14:05" within a week, else the date. It is rounded up to 5
 * minutes, and to a minute where that is soon, as in what a job waits for.
 *
 * @param {string | null | undefined} time @param {number} [now]
 */
export function startTime(time, now = Date.now()) {
  if (!time) return NONE;
  const left = Date.parse(time) - now;
  const step = left > 5 * MINUTE ? 5 * MINUTE : MINUTE;
  const at = new Date(Math.ceil(Date.parse(time) / step) * step);
  const clock = at.toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  if (left < DAY) return clock;
  return left < 6 * DAY ? `${at.toLocaleDateString("en", { weekday: "short" })} ${clock}` : at.toLocaleDateString("en", { month: "short", day: "numeric" });
}

/** "once", "twice", "3 times". @param {number} number */
export const times = (number) => ["never", "once", "twice"][number] ?? `${count(number)} times`;

/** What a queued job waits for, and when it starts. @param {Job} job */
export const waitText = ({ reason, estimated_start_at: at }) => reason + (at ? `; starts about ${startTime(at)}` : "");

/**
 * Where a failure happened: "rank 1 · train.py:42", as far as it is known and its message does not say so itself.
 *
 * @param {Job["outcome"]} outcome
 */
export function failureLocation(outcome) {
  if (!outcome) return "";
  const rank = typeof outcome.rank === "number" ? `rank ${outcome.rank}` : "";
  const line = outcome.file ? `${outcome.file}${outcome.line ? `:${outcome.line}` : ""}` : "";
  const message = outcome.message.toLowerCase();
  return [rank, line].filter((part) => part && !message.includes(part.toLowerCase())).join(" · ");
}
