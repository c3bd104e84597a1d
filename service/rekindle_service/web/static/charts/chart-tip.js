/**
 * What the curves of a chart have at its cursor: in a box next to it, and as a sentence.
 *
 * @import { Content, Frame } from "./chart-frame.js"
 * @typedef {{name: string, value: string, colour: string, height: number}} Row height: pixel of the point
 * @typedef {{at: number, position: string, notes: string[], rows: Row[], text: string}} Reading notes: what is marked there
 */
import { h, patchChildren } from "../shared/dom.js";
import { counted } from "../shared/format.js";
import { isNear, nearest, pixelOf } from "./chart-frame.js";
import { clock, durationLabel } from "./ticks.js";

/** So many rows are readable; of more curves, those nearest to the pointer. */
const MAX_ROWS = 8;
/** Between the cursor and the box. */
const GAP_PX = 10;

/** @param {Content} content @param {Frame} frame @param {number} at @returns {Reading} */
export function readCursor({ series, marks = [], x, y }, frame, at) {
  const rows = series.flatMap((each) => {
    const index = nearest(each, at, frame);
    if (index === null) return [];
    const value = /** @type {number} */ (each.y[index]);
    const text = each.describe?.(index) ?? `${Number(value.toPrecision(5))}${y?.unit ? ` ${y.unit}` : ""}`;
    return [{ name: each.name, value: text, colour: each.colour ?? "--accent", height: pixelOf(frame.y, value) }];
  });
  const position = positionText(x, frame, at);
  const shown = rows.slice(0, MAX_ROWS).map(({ name, value }) => [name, value].filter(Boolean).join(" "));
  const notes = marks.filter((mark) => mark.label && isNear(frame.x, mark.x, at)).map(({ label }) => label).slice(0, MAX_ROWS);
  if (x.idle?.some(({ from, to }) => from < at && at < to)) notes.push("idle, drawn shorter");
  return { at, position, notes, rows, text: [position, ...notes, ...shown].join(", ") };
}

/** @param {Content["x"]} axis @param {Frame} frame @param {number} at */
function positionText({ kind, title = "" }, { x }, at) {
  const pixel = (x.max - x.min) / (x.to - x.from);
  if (kind === "time") return clock(at, pixel);
  if (kind === "duration") return durationLabel(at, pixel);
  const digits = Math.max(3, Math.min(15, Math.ceil(Math.log10(Math.abs(at) / pixel || 1))));
  const text = Number(at.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 10 });
  return title ? `${title} ${text}` : text;
}

/** "2 curves of 35 points, step 1 to 40". @param {Content} content @param {Frame} frame */
export function summaryOf({ series, marks = [], x }, frame) {
  const points = series.reduce((sum, { y }) => sum + y.filter((value) => value !== null).length, 0);
  const labels = marks.filter(({ label }) => label).map(({ label }) => label);
  const span = `${positionText(x, frame, frame.x.min)} to ${positionText({ ...x, title: "" }, frame, frame.x.max)}`;
  return [`${counted(series.length, "curve")} of ${counted(points, "point")}`, span, ...labels.slice(0, MAX_ROWS)].join(", ");
}

export class ChartTip {
  node = h("div", { class: "chart-tip", "aria-hidden": "true", hidden: true });
  /** @type {number | null} */
  #pointer = null;

  /** @param {number | null} height pixel of the pointer; null with the keyboard */
  pointAt(height) {
    this.#pointer = height;
  }

  /** @param {Reading | null} reading @param {Frame} frame */
  update(reading, { x }) {
    this.node.hidden = !reading || !(reading.rows.length || reading.notes.length) || reading.at < x.min || reading.at > x.max;
    if (this.node.hidden || !reading) return;
    patchChildren(this.node, [h("strong", {}, reading.position), ...reading.notes.map((note) => h("bdi", {}, note)), ...this.#rows(reading).map(rowNode)]);
    const left = pixelOf(x, reading.at);
    const isRight = left < (x.from + x.to) / 2;
    this.node.style.left = isRight ? `${left + GAP_PX}px` : "auto";
    this.node.style.right = isRight ? "auto" : `calc(100% - ${left - GAP_PX}px)`;
  }

  /** @param {Reading} reading */
  #rows({ rows }) {
    const pointer = this.#pointer;
    if (rows.length <= MAX_ROWS || pointer === null) return rows.slice(0, MAX_ROWS);
    return [...rows].sort((one, other) => Math.abs(one.height - pointer) - Math.abs(other.height - pointer)).slice(0, MAX_ROWS);
  }
}

/** @param {Row} row */
function rowNode({ name, value, colour }) {
  const swatch = h("span", { class: "swatch" });
  swatch.style.background = colour.startsWith("--") ? `var(${colour})` : colour;
  return h("span", {}, swatch, value, name && h("bdi", {}, name));
}
