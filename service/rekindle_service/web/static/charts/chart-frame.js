/**
 * The geometry of a line chart: what its axes span, where a value is, and which point is nearest. Pure.
 *
 * @typedef {object} Series
 * @property {string} name
 * @property {(number | null)[]} x in the unit of the axis
 * @property {(number | null)[]} y null where there is a gap
 * @property {string} [colour] a CSS colour, or the name of a CSS variable: "--accent"
 * @property {number} [width] of the line, in CSS pixels
 * @property {boolean} [dash]
 * @property {boolean} [faded]
 * @property {(index: number) => string} [describe] a point in words, where its y does not say enough
 * @typedef {{x: number, label: string, kind: string}} Mark a vertical line; kinds: attempt, failure
 * @typedef {{from: number, to: number, shown: number}} Idle a stretch that is drawn as if it were `shown` long
 * @typedef {object} Content
 * @property {Series[]} series
 * @property {Mark[]} [marks]
 * @property {{kind: import("./ticks.js").AxisKind, title?: string, min?: number, max?: number, idle?: Idle[]}} x idle: ascending
 * @property {{log?: boolean, min?: number, max?: number, unit?: string}} [y]
 * @typedef {[from: number, to: number]} Range
 * @typedef {{min: number, max: number, from: number, to: number, log: boolean, idle?: Idle[]}} Scale a span of values, and of pixels
 * @typedef {{width: number, height: number, x: Scale, y: Scale, xTicks: Tick[], yTicks: Tick[]}} Frame
 */
/** @import { Tick } from "./ticks.js" */
import { axisTicks, logTicks } from "./ticks.js";

const MARGIN = { top: 8, right: 10, bottom: 20, label: 16 };
const PIXELS_PER_TICK = { x: 80, y: 32 };
/** The arithmetic of a scale overflows beyond it. */
const MAX_VALUE = 1e300;
/** What is shown around a single point: steps or seconds. */
const SHORTEST = { whole: 1, time: 30, duration: 30 };
/** A curve is shown at a cursor this far beyond its ends, in pixels. */
const REACH = 12;

/**
 * @param {Content} content @param {Range | null} range of x that is shown; null for all
 * @param {{width: number, height: number}} size in pixels
 * @param {(text: string) => number} measure width of a text, in pixels
 * @returns {Frame}
 */
export function frameOf(content, range, { width, height }, measure) {
  const [min, max] = range ?? xSpan(content);
  const log = content.y?.log ?? false;
  const [low, high] = ySpan(content, min, max, log);
  const top = content.marks?.some(({ label }) => label) ? MARGIN.label : MARGIN.top;
  const bottom = height - MARGIN.bottom;
  const rows = Math.floor((bottom - top) / PIXELS_PER_TICK.y);
  const yTicks = log ? logTicks(low, high, Math.max(2, rows)) : axisTicks("number", low, high, rows);
  withUnit(yTicks, content.y?.unit);
  const start = Math.ceil(Math.max(28, ...yTicks.map(({ label }) => measure(label)))) + 8;
  const xTicks = axisTicks(content.x.kind, min, max, Math.floor((width - start) / PIXELS_PER_TICK.x), content.x.idle);
  const x = { min, max, from: start, to: Math.max(start + 1, width - MARGIN.right), log: false, idle: content.x.idle };
  return { width, height, x, y: { min: low, max: high, from: bottom, to: top, log }, xTicks, yTicks };
}

/** The unit stands at the highest tick. @param {Tick[]} ticks @param {string} [unit] */
function withUnit(ticks, unit) {
  const last = ticks.at(-1);
  if (last && unit) last.label += ` ${unit}`;
}

/** The pixel of a value. @param {Scale} scale @param {number} value */
export function pixelOf({ min, max, from, to, log, idle }, value) {
  const place = (/** @type {number} */ each) => (log ? Math.log(each) : each - omitted(idle, each));
  return from + ((place(value) - place(min)) / (place(max) - place(min))) * (to - from);
}

/** How much before `value` takes no room. @param {Idle[] | undefined} idle @param {number} value */
function omitted(idle, value) {
  let sum = 0;
  for (const { from, to, shown } of idle ?? []) sum += Math.max(0, Math.min(1, (value - from) / (to - from))) * (to - from - shown);
  return sum;
}

/** The value at a pixel, within the span. @param {Scale} scale @param {number} pixel */
export function valueAt({ min, max, from, to, idle = [] }, pixel) {
  const [first, last] = [min - omitted(idle, min), max - omitted(idle, max)];
  const drawn = first + Math.max(0, Math.min(1, (pixel - from) / (to - from))) * (last - first);
  return idle.reduce((value, { from: begin, to: end, shown }) => {
    if (value <= begin) return value;
    return value < begin + shown ? begin + ((value - begin) / shown) * (end - begin) : value + end - begin - shown;
  }, drawn);
}

/** Whether a value has a place on the axis. @param {Scale} scale @param {number | null} value @returns {value is number} */
const isDrawable = ({ log }, value) => value !== null && Number.isFinite(value) && (!log || value > 0);

/** What all curves span. @param {Content} content @returns {Range} */
export function xSpan({ series, x }) {
  const [min, max] = extent(series.map((each) => each.x));
  const [from, to] = [x.min ?? min, x.max ?? max];
  return from < to || x.kind === "number" ? widened(from, to, 0) : [Math.max(0, from - SHORTEST[x.kind]), from + SHORTEST[x.kind]];
}

/** What the curves span where they are shown. @param {Content} content @param {number} from @param {number} to @param {boolean} log @returns {Range} */
function ySpan({ series, y = {} }, from, to, log) {
  const [low, high] = extent(series.map((each) => each.y.filter((value, index) => (!log || (value ?? 0) > 0) && isBetween(each.x[index], from, to))));
  if (!log) return widened(y.min ?? low, y.max ?? high, y.max === undefined ? 0.05 : 0, y.min);
  return low > 0 ? [low / 1.15, high * 1.15] : [0.1, 10];
}

/** @param {number | null} value @param {number} from @param {number} to */
const isBetween = (value, from, to) => value !== null && value >= from && value <= to;

/** Lowest and highest of all lists; 0 and 1 where there is none. @param {(number | null)[][]} lists @returns {Range} */
function extent(lists) {
  let [low, high] = [Infinity, -Infinity];
  for (const list of lists) {
    for (const value of list) {
      if (value === null || !Number.isFinite(value)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [Math.max(-MAX_VALUE, low), Math.min(MAX_VALUE, high)] : [0, 1];
}

/** A span that is not empty, with a margin on both sides; below 0 only where a value is. @param {number} low @param {number} high @param {number} margin share of the span @param {number} [fixed] lower end @returns {Range} */
function widened(low, high, margin, fixed) {
  const isEmpty = !(high - low > Math.abs(high) * 1e-12);
  const pad = isEmpty ? Math.abs(high) * 0.1 || 0.5 : (high - low) * margin;
  return [fixed ?? (low < 0 ? low - pad : Math.max(0, low - pad)), high + pad];
}

/**
 * The points of a curve as pixels, in runs without a gap; of the points in one column of pixels the first, lowest,
 * highest and last. Where `x` goes back, as with a clock that was set, the curve goes back.
 *
 * @param {Series} series @param {Frame} frame @returns {[x: number, y: number][][]}
 */
export function runsOf({ x: xs, y: ys }, { x, y }) {
  /** @type {[number, number][][]} */
  const runs = [[]];
  xs.forEach((value, index) => {
    const height = ys[index];
    if (value === null || !isDrawable(y, height)) {
      if (runs[runs.length - 1].length) runs.push([]);
      return;
    }
    runs[runs.length - 1].push([pixelOf(x, value), pixelOf(y, Math.max(-MAX_VALUE, Math.min(MAX_VALUE, height)))]);
  });
  return runs.map((run) => thinned(visible(run, x))).filter(({ length }) => length);
}

/** Without the points left and right of the plot, but with one neighbour on each side. @param {[number, number][]} run @param {Scale} x */
function visible(run, { from, to }) {
  const isInside = (/** @type {[number, number] | undefined} */ point) => point !== undefined && point[0] >= from && point[0] <= to;
  const crosses = (/** @type {[number, number] | undefined} */ one, /** @type {[number, number] | undefined} */ other) =>
    one !== undefined && other !== undefined && Math.min(one[0], other[0]) < from && Math.max(one[0], other[0]) > to;
  return run.filter((point, index) => [run[index - 1], point, run[index + 1]].some(isInside) || crosses(point, run[index + 1]) || crosses(run[index - 1], point));
}

/** @param {[number, number][]} run @returns {[number, number][]} */
function thinned(run) {
  /** @type {[number, number][]} */
  const kept = [];
  for (let start = 0, end = 0; start < run.length; start = end) {
    const column = Math.floor(run[start][0]);
    for (end = start + 1; end < run.length && Math.floor(run[end][0]) === column; ) end += 1;
    const points = run.slice(start, end);
    if (points.length <= 4) kept.push(...points);
    else kept.push(points[0], points.reduce((one, other) => (other[1] < one[1] ? other : one)), points.reduce((one, other) => (other[1] > one[1] ? other : one)), points[points.length - 1]);
  }
  return kept;
}

/**
 * The point of a curve nearest to `at`; null where the curve ends well before it.
 *
 * @param {Series} series @param {number} at in the unit of the axis @param {Frame} frame @returns {number | null} its index
 */
export function nearest({ x: xs, y: ys }, at, { x, y }) {
  let [best, distance] = [-1, Infinity];
  let [isBefore, isAfter] = [false, false];
  xs.forEach((value, index) => {
    if (value === null || !isDrawable(y, ys[index])) return;
    if (value <= at) isBefore = true;
    if (value >= at) isAfter = true;
    if (Math.abs(value - at) < distance) [best, distance] = [index, Math.abs(value - at)];
  });
  return best >= 0 && ((isBefore && isAfter) || isNear(x, at, /** @type {number} */ (xs[best]))) ? best : null;
}

/** Whether two positions are so close that a pointer may mean either. @param {Scale} x @param {number} one @param {number} other */
export const isNear = (x, one, other) => Math.abs(pixelOf(x, one) - pixelOf(x, other)) <= REACH;

/**
 * The next position of any point, to the right or to the left of `at`; `at` itself where there is none.
 *
 * @param {Series[]} series @param {number} at @param {1 | -1} direction @param {Scale} x
 */
export function neighbour(series, at, direction, { min, max }) {
  let found = direction * Infinity;
  for (const { x: xs } of series) {
    for (const value of xs) {
      if (value === null || value < min || value > max || (value - at) * direction <= 0) continue;
      if ((found - value) * direction > 0) found = value;
    }
  }
  return Number.isFinite(found) ? found : at;
}
