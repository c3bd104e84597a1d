/**
 * A range on an axis of the parallel coordinates, from the lowest to the highest value that it keeps. Pure.
 *
 * @typedef {import("./row-view.js").Dimension} Dimension
 * @typedef {[low: string, high: string]} Range both are values of the column as texts
 * @typedef {{at: number, text: string, label: string}} Stop a value of the column, its position from 0 to 1, and what people read
 */
import { axisFor, valueText } from "./value-axis.js";

/** More of them take too long to read from a URL. */
const MAX_RANGES = 12;

/** The values of a column in the order of its axis, each once. @param {Dimension} dimension @returns {Stop[]} */
export function stopsOf({ values }) {
  const axis = axisFor(values, 2);
  const stops = values.flatMap((value) => {
    const at = axis.position(value);
    const label = valueText(value);
    return at === null ? [] : [{ at, label, text: typeof value === "number" ? String(value) : label }];
  });
  return [...new Map(stops.map((stop) => [stop.at, stop])).values()].sort((one, other) => one.at - other.at);
}

/**
 * The range of the values between two positions; null where none or all of them are.
 *
 * @param {Stop[]} stops @param {number} from @param {number} to @returns {Range | null}
 */
export function rangeBetween(stops, from, to) {
  const kept = stops.filter(({ at }) => at >= from && at <= to);
  return kept.length && kept.length < stops.length ? [kept[0].text, kept[kept.length - 1].text] : null;
}

/**
 * The range with one of its ends moved to the next value, but not beyond the other end.
 *
 * @param {Stop[]} stops @param {Range | null} range @param {"low" | "high"} end @param {1 | -1} step @returns {Range | null}
 */
export function withMovedEnd(stops, range, end, step) {
  let [low, high] = indices(stops, range);
  if (end === "low") low = Math.max(0, Math.min(high, low + step));
  else high = Math.max(low, Math.min(stops.length - 1, high + step));
  return rangeBetween(stops, stops[low].at, stops[high].at);
}

/** Where the ends of a range are among the values. @param {Stop[]} stops @param {Range | null} range @returns {[low: number, high: number]} */
export function indices(stops, range) {
  const [low, high] = (range ?? []).map((text) => stops.findIndex((stop) => stop.text === text));
  return [Math.max(0, low ?? 0), high === undefined || high < 0 ? stops.length - 1 : high];
}

/** Rows outside of any range; those without a value are. @param {Dimension[]} dimensions @param {Map<string, Range>} ranges by the name of the column */
export function rowsOutside(dimensions, ranges) {
  /** @type {Set<number>} */
  const outside = new Set();
  for (const { name, values } of dimensions) {
    const axis = axisFor(values, 2);
    const [from, to] = (ranges.get(name) ?? []).map(axis.position);
    if (!Number.isFinite(from) || !Number.isFinite(to)) continue;
    values.forEach((value, row) => {
      const at = axis.position(value);
      if (at === null || at < Number(from) || at > Number(to)) outside.add(row);
    });
  }
  return outside;
}

/** @param {string[]} texts as `formatRanges` makes them; others are ignored @returns {Map<string, Range>} */
export function parseRanges(texts) {
  return new Map(texts.slice(0, MAX_RANGES).flatMap((text) => parsed(text)));
}

/** @param {Map<string, Range>} ranges */
export const formatRanges = (ranges) => [...ranges].map(([name, range]) => JSON.stringify([name, ...range]));

/** @param {string} text @returns {[name: string, range: Range][]} */
function parsed(text) {
  try {
    const parts = JSON.parse(text);
    const isRange = Array.isArray(parts) && parts.length === 3 && parts.every((part) => typeof part === "string");
    return isRange ? [[parts[0], [parts[1], parts[2]]]] : [];
  } catch {
    return [];
  }
}
