/**
 * Where the ticks of an axis are, and how they are labelled. Pure.
 *
 * @typedef {{at: number, label: string}} Tick
 * @typedef {"number" | "whole" | "time" | "duration"} AxisKind plain numbers; steps; seconds since the epoch; seconds
 */

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;
/** Seconds between two ticks of a clock. */
const CLOCK_STEPS = [1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY];
/** Numbers beyond these have an exponent: 1e7, 1e-5. */
const MAX_PLAIN = 1e7;
const MIN_PLAIN_STEP = 1e-5;
const MAX_DIGITS = 10;
const MIN_TICKS = 3;
/** More ticks than this are not tried in order to get three. */
const MAX_ROOM = 12;
/** By the number of digits after the point: making one takes longer than using it. */
const formats = Array.from({ length: MAX_DIGITS + 1 }, (_, digits) => new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));

/** How far apart ticks are, and their labels. @type {Record<AxisKind, {step: (span: number, count: number) => number, label: (at: number, step: number, largest: number) => string}>} */
const KINDS = {
  number: { step: niceStep, label: numberLabel },
  whole: { step: (span, count) => Math.max(1, niceStep(span, count)), label: numberLabel },
  time: { step: clockStep, label: clockLabel },
  duration: { step: clockStep, label: durationLabel },
};

/**
 * About `count` ticks from `min` to `max`, three at least where whole numbers allow it.
 *
 * @param {AxisKind} kind @param {number} min @param {number} max @param {number} count
 * @param {{from: number, to: number}[]} [idle] stretches without ticks, ascending, which take next to no room @returns {Tick[]}
 */
export function axisTicks(kind, min, max, count, idle = []) {
  const ends = idle.filter(({ from, to }) => from < max && to > min).flatMap(({ from, to }) => [from, to]);
  const edges = [min, ...ends, max];
  const parts = edges.flatMap((from, index) => (index % 2 || edges[index + 1] < from ? [] : [[from, edges[index + 1]]]));
  const span = parts.reduce((sum, [from, to]) => sum + to - from, 0) || max - min;
  const offset = kind === "time" ? -new Date(min * 1000).getTimezoneOffset() * MINUTE : 0; // the browser's zone
  for (let room = Math.max(count, MIN_TICKS); ; room += 1) {
    const step = KINDS[kind].step(span, room);
    const found = parts.flatMap(([from, to], index) => {
      const inside = multiples(from, to, step, offset);
      return inside.length || !index ? inside : [from]; // what follows an idle stretch has a label
    });
    if (found.length >= MIN_TICKS || room > MAX_ROOM) return found.map((at) => ({ at, label: KINDS[kind].label(at, step, Math.max(Math.abs(min), Math.abs(max))) }));
  }
}

/** @param {number} at @param {number} step @param {number} largest value of the axis */
function numberLabel(at, step, largest) {
  return largest >= MAX_PLAIN || step < MIN_PLAIN_STEP ? exponent(at, step) : plain(at, step);
}

/** On a logarithmic axis: powers of ten, with 2 and 5 between them where there is room. @param {number} min above 0 @param {number} max @param {number} count @returns {Tick[]} */
export function logTicks(min, max, count) {
  const [low, high] = [Math.floor(Math.log10(min)), Math.ceil(Math.log10(max))];
  const stride = Math.max(1, Math.ceil((high - low) / count));
  const factors = high - low <= count / 2 ? [1, 2, 5] : [1];
  const decades = Array.from({ length: Math.floor((high - low) / stride) + 1 }, (_, index) => low + index * stride);
  const found = decades.flatMap((decade) => factors.map((factor) => factor * 10 ** decade)).filter((at) => at >= min && at <= max);
  if (found.length < MIN_TICKS) return count < MAX_ROOM && high - low > 1 ? logTicks(min, max, count + 1) : axisTicks("number", min, max, MIN_TICKS);
  return found.map((at) => ({ at, label: at >= MAX_PLAIN || at < 0.001 ? exponent(at, at) : String(Number(at.toPrecision(1))) }));
}

/** A day's first tick is its date. @param {number} at seconds since the epoch @param {number} step seconds */
function clockLabel(at, step) {
  const time = new Date(at * 1000);
  const isMidnight = time.getHours() === 0 && time.getMinutes() === 0 && time.getSeconds() === 0;
  if (step >= DAY || (isMidnight && step >= 1)) return time.toLocaleDateString("en", { month: "short", day: "numeric" });
  return clock(at, step);
}

/** "14:05", "14:05:07" or "14:05:07.250", by how close the times are. @param {number} at seconds since the epoch @param {number} step seconds */
export function clock(at, step) {
  const time = new Date(at * 1000);
  const parts = [time.getHours(), time.getMinutes(), ...(step < MINUTE ? [time.getSeconds()] : [])];
  const text = parts.map((part) => String(part).padStart(2, "0")).join(":");
  return step < 1 ? `${text}.${String(time.getMilliseconds()).padStart(3, "0")}` : text;
}

/** "30 s", "1:30 min", "5 min", "2 h", "2:30 h", "3 d". @param {number} seconds @param {number} step seconds */
export function durationLabel(seconds, step) {
  const two = (/** @type {number} */ part) => String(Math.floor(part)).padStart(2, "0");
  if (seconds === 0) return "0";
  if (step >= DAY) return `${Math.round(seconds / DAY)} d`;
  if (Math.abs(seconds) >= HOUR && step >= MINUTE) return withRest(Math.floor(seconds / HOUR), two((seconds % HOUR) / MINUTE), "h");
  if (Math.abs(seconds) >= HOUR) return `${Math.floor(seconds / HOUR)}:${two((seconds % HOUR) / MINUTE)}:${two(seconds % MINUTE)} h`;
  if (Math.abs(seconds) >= MINUTE) return withRest(Math.floor(seconds / MINUTE), two(seconds % MINUTE), "min");
  return `${plain(seconds, Math.min(1, step))} s`;
}

/** @param {number} whole @param {string} rest @param {string} unit */
const withRest = (whole, rest, unit) => (rest === "00" ? `${whole} ${unit}` : `${whole}:${rest} ${unit}`);

/** Seconds between two ticks. @param {number} span @param {number} count */
function clockStep(span, count) {
  if (span / count < 1) return niceStep(span, count);
  return CLOCK_STEPS.find((step) => step * count >= span) ?? Math.ceil(niceStep(span / DAY, count)) * DAY;
}

/** 1, 2 or 5 times a power of ten, of which about `count` fit into `span`. @param {number} span @param {number} count */
function niceStep(span, count) {
  const power = 10 ** Math.floor(Math.log10(span / count));
  return power * ([1, 2, 5].find((factor) => factor * power * count >= span) ?? 10);
}

/** Multiples of `step` from `min` to `max`, moved by `offset`. @param {number} min @param {number} max @param {number} step @param {number} offset */
function multiples(min, max, step, offset) {
  const first = Math.ceil((min + offset) / step - 1e-9);
  const length = Math.max(0, Math.min(100, Math.floor((max + offset) / step + 1e-9) - first + 1));
  return Array.from({ length }, (_, index) => (first + index) * step - offset);
}

/** @param {number} value @param {number} step of the axis, which decides about the digits */
function plain(value, step) {
  const digits = Math.max(0, Math.min(MAX_DIGITS, -Math.floor(Math.log10(step) + 1e-9)));
  return formats[digits].format(value);
}

/** @param {number} value @param {number} step of the axis, which decides about the digits */
function exponent(value, step) {
  if (value === 0) return "0";
  const digits = Math.floor(Math.log10(Math.abs(value)) + 1e-9) - Math.floor(Math.log10(step) + 1e-9);
  return value.toExponential(Math.max(0, Math.min(8, digits))).replace("e+", "e");
}
