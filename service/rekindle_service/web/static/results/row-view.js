/**
 * How the rows of a table of results are shown: which are hidden, in which order, and by what they are coloured. The URL
 * stores it, so that a link shows the same.
 *
 * @typedef {string | number | boolean | null | undefined} Value
 * @typedef {object} Dimension a column
 * @property {string} name
 * @property {boolean} isResult else it is a parameter
 * @property {Value[]} values of each row; undefined or null where it has none
 * @property {number[]} best indices of the rows with the best value
 * @typedef {{name: string, descending: boolean}} Sort
 * @typedef {{name: string, colour: string, isHidden: boolean, isOutside: boolean, isFaded: boolean}} Look `isOutside`: hidden by a range
 */
import { colourOf } from "../charts/palette.js";
import { formatRanges, parseRanges, rowsOutside } from "./axis-range.js";

/**
 * The rows with the best value; none where there is no goal, or where no row is worse.
 *
 * @param {(number | null)[]} values @param {"min" | "max" | null} goal @returns {number[]}
 */
export function bestRows(values, goal) {
  const known = values.filter((value) => value !== null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  if (goal === null || !(low < high)) return [];
  return values.flatMap((value, row) => (value === (goal === "min" ? low : high) ? [row] : []));
}

/** Sorts words with numbers in them as people do. */
const collator = new Intl.Collator("en", { numeric: true });

export class RowView {
  /** @type {Set<number>} rows that the user has hidden one by one */
  #hidden = new Set();
  /** @type {Map<string, import("./axis-range.js").Range>} by the name of a dimension: rows outside are hidden */
  ranges = new Map();
  /** @type {Set<number>} */
  #outside = new Set();
  /** @type {Sort | null} */
  sort = null;
  /** @type {string} name of a dimension; empty: each row has its own colour */
  colourBy = "";
  /** @type {number | null} row that the user points at */
  highlighted = null;
  /** @type {string[]} */
  #colours = [];
  /** @type {string[]} */
  #names = [];
  #onChange;
  #onHighlight;

  /** @param {() => void} onChange everything is to be drawn again @param {() => void} onHighlight rows have another look */
  constructor(onChange, onHighlight) {
    this.#onChange = onChange;
    this.#onHighlight = onHighlight;
    this.read();
  }

  /** Read the URL: it is new, or the browser went back. */
  read() {
    const query = new URLSearchParams(location.search);
    const hidden = query.get("hide")?.split(",").map((text) => Number(text) - 1) ?? [];
    this.#hidden = new Set(hidden.filter((row) => Number.isInteger(row) && row >= 0));
    this.ranges = parseRanges(query.getAll("range"));
    const sort = query.get("sort");
    this.sort = sort ? { name: sort, descending: query.get("order") === "descending" } : null;
    this.colourBy = query.get("colour") ?? "";
  }

  #write() {
    const url = new URL(location.href);
    const hide = [...this.#hidden].sort((one, other) => one - other).map((row) => row + 1).join(",");
    for (const [name, value] of Object.entries({ hide, sort: this.sort?.name, order: this.sort?.descending && "descending", colour: this.colourBy })) {
      if (value) url.searchParams.set(name, value);
      else url.searchParams.delete(name);
    }
    url.searchParams.delete("range");
    for (const range of formatRanges(this.ranges)) url.searchParams.append("range", range);
    history.replaceState(null, "", url);
    this.#onChange();
  }

  /** @param {number} row */
  toggle(row) {
    if (!this.#hidden.delete(row)) this.#hidden.add(row);
    this.#write();
  }

  /** @param {string} name of a dimension @param {import("./axis-range.js").Range | null} range null: all its rows */
  setRange(name, range) {
    if (range) this.ranges.set(name, range);
    else this.ranges.delete(name);
    this.#write();
  }

  showAll() {
    this.#hidden.clear();
    this.ranges.clear();
    this.#write();
  }

  /** The first click sorts ascending, the second descending, the third not at all. @param {string} name */
  sortBy(name) {
    if (this.sort?.name !== name) this.sort = { name, descending: false };
    else this.sort = this.sort.descending ? null : { name, descending: true };
    this.#write();
  }

  /** @param {string} name of a dimension, or empty */
  colour(name) {
    this.colourBy = name;
    this.#write();
  }

  /** @param {number | null} row */
  highlight(row) {
    if (row === this.highlighted) return;
    this.highlighted = row;
    this.#onHighlight();
  }

  /** Give each row its name and its colour, and find those outside of a range. @param {Dimension[]} dimensions @param {string[]} names of the rows */
  paint(dimensions, names) {
    const rows = names.length;
    this.#names = names;
    this.#outside = rowsOutside(dimensions, this.ranges);
    const by = dimensions.find(({ name }) => name === this.colourBy);
    const groups = by ? [...new Set(by.values.map(String))].sort(collator.compare) : [];
    const index = (/** @type {number} */ row) => (by ? groups.indexOf(String(by.values[row])) : row);
    this.#colours = Array.from({ length: rows }, (_, row) => colourOf(index(row), by ? groups.length : rows));
  }

  /** @param {number} row @returns {Look} */
  look(row) {
    const isFaded = this.highlighted !== null && this.highlighted !== row;
    const isOutside = this.#outside.has(row);
    return { name: this.#names[row] ?? "", colour: this.#colours[row] ?? "var(--muted)", isHidden: isOutside || this.#hidden.has(row), isOutside, isFaded };
  }

  /** The rows in the order to show. @param {Dimension[]} dimensions @param {number} rows @returns {number[]} */
  order(dimensions, rows) {
    const all = Array.from({ length: rows }, (_, row) => row);
    const by = dimensions.find(({ name }) => name === this.sort?.name);
    return by ? sorted(all, by.values, this.sort?.descending ?? false) : all;
  }
}

/** Rows without a value come last in either direction. @param {number[]} rows @param {Value[]} values @param {boolean} descending */
function sorted(rows, values, descending) {
  const isMissing = (/** @type {Value} */ value) => value === null || value === undefined || value === "";
  const compare = (/** @type {Value} */ one, /** @type {Value} */ other) =>
    typeof one === "number" && typeof other === "number" ? one - other : collator.compare(String(one), String(other));
  return rows.sort((one, other) => {
    const [a, b] = [values[one], values[other]];
    if (isMissing(a) || isMissing(b)) return Number(isMissing(a)) - Number(isMissing(b)) || one - other;
    return (descending ? compare(b, a) : compare(a, b)) || one - other;
  });
}
