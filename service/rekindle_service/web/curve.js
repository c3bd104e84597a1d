/** From points of a metric to what is drawn of them: the horizontal axis, smoothing, and values no axis can hold. Pure. */

/** @typedef {import("./api.js").Point} Point */
/** @typedef {"step" | "epoch" | "time"} Axis */

/** Beyond it the arithmetic of an axis overflows. */
const LARGEST = 1e300;

/**
 * Where on the axis each point lies; null for one without an epoch.
 *
 * @param {Point[]} points of one attempt, ascending by step
 * @param {Axis} axis
 * @param {number} origin of the time, in seconds since the epoch
 * @param {number} unit of the time, in seconds
 */
export function positions(points, axis, origin, unit) {
  if (axis === "step") return points.map(([step]) => step);
  if (axis === "time") return points.map(([, , at]) => (at - origin) / unit);
  return epochs(points);
}

/**
 * The epoch of each point with the part of it that was done, as far as the steps of the epochs beside it tell.
 *
 * @param {Point[]} points
 */
function epochs(points) {
  /** @type {Map<number, number>} first step of each epoch */
  const begins = new Map();
  for (const [step, epoch] of points) if (epoch !== null && !begins.has(epoch)) begins.set(epoch, step);
  const lengths = [...begins].map(([epoch, begin]) => (begins.get(epoch + 1) ?? NaN) - begin).filter((length) => length > 0);
  const typical = lengths.length ? Math.max(...lengths) : NaN;
  return points.map(([step, epoch]) => {
    if (epoch === null) return null;
    const begin = begins.get(epoch) ?? step;
    const length = (begins.get(epoch + 1) ?? begin + typical) - begin;
    return length > 0 ? epoch + Math.min(1, (step - begin) / length) : epoch;
  });
}

/** The unit of a span of time: its name and its seconds. @param {number} seconds @returns {[string, number]} */
export function timeUnit(seconds) {
  if (seconds < 300) return ["seconds", 1];
  return seconds < 3 * 3600 ? ["minutes", 60] : ["hours", 3600];
}

/**
 * An exponential mean that weighs the first values fairly; what is missing stays missing.
 *
 * @param {(number | null)[]} values
 * @param {number} weight of what went before, from 0 (none) to below 1
 */
export function smoothed(values, weight) {
  let mean = 0;
  let share = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    share = weight * share + (1 - weight);
    return mean / share;
  });
}

/** A line through a single place would have no length. @param {(number | null)[]} places on the axis */
export const drawnAs = (places) => (new Set(places).size > 1 ? "lines" : "markers");

/** @param {Point[]} points */
export const drawable = (points) => points.map(([, , , value]) => (value === null ? null : Math.max(-LARGEST, Math.min(LARGEST, value))));

/**
 * What cannot be seen in the curve, in words.
 *
 * @param {Point[]} points
 * @param {boolean} logarithmic
 */
export function unseen(points, logarithmic) {
  const missing = points.filter(([, , , value]) => value === null);
  const low = logarithmic ? points.filter(([, , , value]) => value !== null && value <= 0).length : 0;
  return [
    missing.length ? `${missing.length} not finite, the first at step ${missing[0][0]}` : "",
    low ? `${low} not above 0` : "",
  ].filter(Boolean).join("; ");
}

/**
 * @param {import("./series.js").Part[]} parts
 * @returns {string} a table for other programs; `superseded` marks what a later attempt has done again
 */
export function asCsv(parts) {
  const row = (/** @type {number} */ attempt, /** @type {Point} */ [step, epoch, at, value], /** @type {boolean} */ again) =>
    [attempt, step, epoch ?? "", new Date(at * 1000).toISOString(), value ?? "nan", again].join(",");
  const rows = parts.flatMap(({ attempt, kept, redone }) => [
    ...kept.map((point) => row(attempt, point, false)),
    ...redone.map((point) => row(attempt, point, true)),
  ]);
  return ["attempt,step,epoch,time,value,superseded", ...rows, ""].join("\n");
}
