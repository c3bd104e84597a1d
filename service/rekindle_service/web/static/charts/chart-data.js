/**
 * From points of a metric to what is drawn of them: the horizontal axis, smoothing, and values that no axis has. Pure.
 *
 * @import { MetricSeries } from "../shared/api-types.d.ts"
 * @typedef {MetricSeries["points"][number]} Point step, epoch, seconds since the epoch, value
 * @typedef {"step" | "epoch" | "time"} Axis
 * @typedef {[step: number, epoch: number][]} Epochs which epoch begins after which step, both ascending; at least two
 * @typedef {object} Unit of an axis
 * @property {Axis} by
 * @property {(step: number) => number} ofStep the position of a step, on an axis of steps or epochs
 * @property {(position: number) => number} toStep
 */

/** More epochs than any job has. */
const MANY = 1e6;

/** Between the two pairs next to `value`. @param {[number, number][]} pairs ascending @param {number} value */
export function interpolated(pairs, value) {
  const next = pairs.findIndex(([each]) => each >= value);
  if (next <= 0) return pairs[next === 0 ? 0 : pairs.length - 1][1];
  const [[x0, y0], [x1, y1]] = [pairs[next - 1], pairs[next]];
  return x1 > x0 ? y0 + ((value - x0) / (x1 - x0)) * (y1 - y0) : y1;
}

/**
 * Which step each epoch begins after: by the length of the job where it reports that, else by the points of its metrics.
 * The first point of an epoch is then its first step, or its last, where no epoch has more than one.
 *
 * @param {{steps: number | null, epochs: number | null}} job @param {Point[]} points
 * @returns {Epochs | null} null where too little is known
 */
export function epochsOf({ steps, epochs }, points) {
  if (steps && epochs) return [[0, 0], [MANY * steps, MANY * epochs]];
  if (countedBy(points) === "epoch") return [[0, 0], [MANY, MANY]];
  /** @type {Map<number, [first: number, last: number]>} */
  const seen = new Map();
  for (const [step, epoch] of points) {
    if (epoch === null) continue;
    const [first, last] = seen.get(epoch) ?? [step, step];
    seen.set(epoch, [Math.min(first, step), Math.max(last, step)]);
  }
  const found = [...seen].sort(([one], [other]) => one - other);
  if (found.length < 2) return null;
  const atEnd = found.every(([, [first, last]]) => first === last);
  return prolonged(found.map(([epoch, [first]]) => /** @type {Epochs[number]} */ (atEnd ? [first, epoch + 1] : [first - 1, epoch])));
}

/** Extended to the first step and beyond the last, by epochs as long as their neighbours. @param {Epochs} known @returns {Epochs | null} */
function prolonged(known) {
  const [first, last] = [lengthOf(known[0], known[1]), lengthOf(known[known.length - 2], known[known.length - 1])];
  if (!(first > 0 && last > 0)) return null;
  const [[step, epoch], [endStep, endEpoch]] = [known[0], known[known.length - 1]];
  const before = Math.max(0, Math.min(epoch, step / first));
  return [[step - before * first, epoch - before], ...known, [endStep + MANY * last, endEpoch + MANY]];
}

/** Steps of an epoch. @param {Epochs[number]} one @param {Epochs[number]} next */
const lengthOf = ([s0, e0], [s1, e1]) => (s1 - s0) / (e1 - e0);

/** @param {Axis} by @param {Epochs | null} epochs @returns {Unit} of steps where there shall be epochs and none are known */
export function unitOf(by, epochs) {
  const same = (/** @type {number} */ value) => value;
  if (by !== "epoch" || !epochs) return { by: by === "time" ? "time" : "step", ofStep: same, toStep: same };
  const toStep = (/** @type {number} */ epoch) => Number(interpolated(epochs.map(([each, at]) => [at, each]), epoch).toFixed(6));
  return { by, ofStep: (step) => interpolated(epochs, step), toStep };
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
