/**
 * An axis for the values of a column: numbers on a linear or a logarithmic scale, anything else as categories. Pure.
 *
 * @typedef {import("./row-view.js").Value} Value
 * @typedef {{at: number, label: string}} Tick `at` from 0 to 1
 * @typedef {{ticks: Tick[], position: (value: Value) => number | null}} ValueAxis position from 0 to 1; null for no value
 */
import { axisTicks, logTicks } from "../charts/ticks.js";
import { significant } from "../shared/format.js";

/** A learning rate spans more than this; other numbers are drawn linearly. */
const LOG_RATIO = 50;
/** Up to this many different numbers are all named. */
const FEW = 6;
/** More categories cannot be told apart. */
const MAX_CATEGORIES = 20;

/** @param {Value} value */
const isMissing = (value) => value === null || value === undefined || value === "";

/** @param {Value} value @returns {number | null} */
function asNumber(value) {
  if (typeof value === "number") return Number.isFinite(value) ? value : null;
  return typeof value === "string" && /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(value) ? Number(value) : null;
}

/** @param {Value} value */
export const valueText = (value) => (value === true ? "yes" : value === false ? "no" : value === null ? "not set" : typeof value === "number" ? significant(value) : String(value ?? ""));

/** @param {Value[]} values of all rows @param {number} count of ticks, about @returns {ValueAxis} */
export function axisFor(values, count) {
  const known = values.filter((value) => !isMissing(value));
  return known.length && known.every((value) => asNumber(value) !== null) ? numeric(known.map((value) => asNumber(value) ?? 0), count) : categorical(known);
}

/** @param {number[]} numbers not empty @param {number} count @returns {ValueAxis} */
function numeric(numbers, count) {
  const [min, max] = [Math.min(...numbers), Math.max(...numbers)];
  const isLog = min > 0 && max / min >= LOG_RATIO;
  const scale = (/** @type {number} */ value) => (isLog ? Math.log(value) : value);
  const [low, span] = [scale(min), scale(max) - scale(min)];
  const position = (/** @type {number} */ value) => (span > 0 && Number.isFinite(span) ? (scale(value) - low) / span : 0.5);
  const distinct = [...new Set(numbers)].sort((one, other) => one - other);
  const ticks = distinct.length <= Math.min(FEW, count) ? distinct.map((at) => ({ at, label: significant(at) })) : isLog ? logTicks(min, max, count) : axisTicks("number", min, max, count);
  return {
    ticks: apart(ticks.filter(({ at }) => at >= min && at <= max).map(({ at, label }) => ({ at: position(at), label })), count),
    position: (value) => {
      const number = asNumber(value);
      return number === null ? null : position(number);
    },
  };
}

/** @param {Value[]} known @returns {ValueAxis} */
function categorical(known) {
  const names = [...new Set(known.map(valueText))].slice(0, MAX_CATEGORIES);
  const at = (/** @type {number} */ index) => (names.length > 1 ? index / (names.length - 1) : 0.5);
  return {
    ticks: names.map((label, index) => ({ at: at(index), label })),
    position: (value) => (isMissing(value) || !names.includes(valueText(value)) ? null : at(names.indexOf(valueText(value)))),
  };
}

/** Without ticks that would be drawn over others. @param {Tick[]} ticks ascending @param {number} count that have room */
function apart(ticks, count) {
  /** @type {Tick[]} */
  const kept = [];
  for (const tick of ticks) if (!kept.length || tick.at - kept[kept.length - 1].at >= 0.7 / count) kept.push(tick);
  return kept;
}
