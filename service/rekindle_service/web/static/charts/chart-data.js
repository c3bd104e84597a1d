/**
 * From points of a metric to what is drawn of them: the horizontal axis, smoothing, and values that no axis has. Pure.
 *
 * @import { MetricSeries } from "../shared/api-types.d.ts"
 * @typedef {MetricSeries["points"][number]} Point step, epoch, seconds since the epoch, value
 * @typedef {"step" | "epoch" | "time"} Axis
 */

/**
 * Where on the axis each point is; null for one without an epoch.
 *
 * @param {Point[]} points of one attempt, ascending by step @param {Axis} axis
 * @param {number} origin of the time, in seconds since the epoch
 */
export function positions(points, axis, origin) {
  if (axis === "step") return points.map(([step]) => step);
  if (axis === "time") return points.map(([, , at]) => at - origin);
  return epochs(points);
}

/**
 * The epoch of each point with its completed part, as far as the first steps of the epochs show it.
 *
 * @param {Point[]} points
 */
function epochs(points) {
  /** @type {Map<number, number>} first step of each epoch */
  const starts = new Map();
  for (const [step, epoch] of points) if (epoch !== null && !starts.has(epoch)) starts.set(epoch, step);
  const lengths = [...starts].map(([epoch, start]) => (starts.get(epoch + 1) ?? NaN) - start).filter((length) => length > 0);
  const typical = lengths.length ? Math.max(...lengths) : NaN;
  return points.map(([step, epoch]) => {
    if (epoch === null) return null;
    const start = starts.get(epoch) ?? step;
    const length = (starts.get(epoch + 1) ?? start + typical) - start;
    return length > 0 ? epoch + Math.min(1, (step - start) / length) : epoch;
  });
}

/** @param {Axis} axis @param {string} since what time is measured from, in words @returns {import("./chart-frame.js").Content["x"]} */
export const axisOf = (axis, since) => (axis === "time" ? { kind: "duration", title: `since ${since}` } : { kind: "number", title: axis });

/**
 * An exponential moving average without bias towards the first values; missing values stay missing.
 *
 * @param {(number | null)[]} values @param {number} weight of the earlier values, from 0 (none) to below 1
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

/** @param {Point[]} points */
export const valuesOf = (points) => points.map(([, , , value]) => value);

/** What a script counts that prints a line for each epoch and no steps: its epochs. @param {Point[]} points @returns {"epoch" | "step"} */
export const countedBy = (points) => (points.length && points.every(([step, epoch]) => step === epoch) ? "epoch" : "step");

/** A value with its step, where the axis does not show it. @param {Point} point @param {number | null} value @param {Axis} axis @param {"epoch" | "step"} [counted] */
export const pointText = ([step], value, axis, counted = "step") => `${Number((value ?? NaN).toPrecision(5))}${axis === "step" ? "" : ` at ${counted} ${step}`}`;

/** The lowest or highest point, as the goal of the metric is; null where it has none, or no value. @param {Point[]} points @param {"min" | "max" | null} goal */
export function bestPoint(points, goal) {
  const known = points.filter(([, , , value]) => value !== null);
  if (!goal || !known.length) return null;
  return known.reduce((one, other) => (goal === "min" ? (other[3] ?? 0) < (one[3] ?? 0) : (other[3] ?? 0) > (one[3] ?? 0)) ? other : one);
}

/** What the chart cannot show, in words. @param {Point[]} points @param {boolean} logarithmic */
export function missingValues(points, logarithmic) {
  const missing = points.filter(([, , , value]) => value === null);
  const low = logarithmic ? points.filter(([, , , value]) => value !== null && value <= 0).length : 0;
  return [
    missing.length ? `${missing.length} not finite, the first at step ${missing[0][0]}` : "",
    low ? `${low} not above 0` : "",
  ].filter(Boolean).join("; ");
}

/** @param {import("./metric-store.js").Part[]} parts @returns {string} a table for other programs */
export function asCsv(parts) {
  const row = (/** @type {number} */ attempt, /** @type {Point} */ [step, epoch, at, value], /** @type {boolean} */ replayed) =>
    [attempt, step, epoch ?? "", new Date(at * 1000).toISOString(), value ?? "nan", replayed].join(",");
  const rows = parts.flatMap(({ attempt, kept, replayed }) => [
    ...kept.map((point) => row(attempt, point, false)),
    ...replayed.map((point) => row(attempt, point, true)),
  ]);
  return ["attempt,step,epoch,time,value,replayed", ...rows, ""].join("\n");
}
