/**
 * Parallel coordinates: an axis for each column, a line for each row. Pointing at a line highlights its row; a click
 * hides it, which can be done in the table, too. A range on an axis hides all rows outside of it.
 *
 * @typedef {import("./row-view.js").Dimension} Dimension
 * @typedef {import("./row-view.js").RowView} RowView
 */
import { indices, rangeBetween, stopsOf, withMovedEnd } from "./axis-range.js";
import { listen } from "./row-parts.js";
import { label, svg } from "./svg.js";
import { axisFor } from "./value-axis.js";

const HEIGHT = 260;
const MARGIN = { top: 42, bottom: 14, side: 14 };
/** Of two axes, in CSS pixels; narrower pages scroll. */
const MIN_DISTANCE = 88;
/** Names of axes that are closer alternate between two lines. */
const NAME_WIDTH = 120;
const MAX_AXES = 12;
const TICKS = 6;
const LABEL = { name: 14, tick: 10 }; // characters

export class ParallelCoordinates {
  #host;
  #view;
  /** @type {Map<number, SVGPathElement>} */
  #lines = new Map();
  #sizes = new ResizeObserver(() => this.#draw());
  /** @type {Dimension[]} */
  #dimensions = [];
  #rows = 0;

  /** @param {HTMLElement} host @param {RowView} view */
  constructor(host, view) {
    this.#host = host;
    this.#view = view;
    listen(host, view, "[data-row]");
    this.#sizes.observe(host);
  }

  /** @param {Dimension[]} dimensions @param {number} rows */
  show(dimensions, rows) {
    this.#dimensions = dimensions.filter(({ values }) => new Set(values.map(String)).size > 1).slice(0, MAX_AXES);
    this.#rows = rows;
    this.#draw();
  }

  /** Not while a range is being dragged. */
  #draw() {
    if (this.#host.querySelector(".dragging")) return;
    const count = this.#dimensions.length;
    const width = Math.max(this.#host.clientWidth, 2 * MARGIN.side + (count - 1) * MIN_DISTANCE);
    if (count < 2 || !this.#host.clientWidth) return this.#host.replaceChildren();
    const axes = this.#dimensions.map(({ values }) => axisFor(values, TICKS));
    const x = (/** @type {number} */ index) => MARGIN.side + (index * (width - 2 * MARGIN.side)) / (count - 1);
    const y = (/** @type {number} */ at) => HEIGHT - MARGIN.bottom - at * (HEIGHT - MARGIN.top - MARGIN.bottom);
    const points = (/** @type {number} */ row) => axes.map((axis, index) => [x(index), axis.position(this.#dimensions[index].values[row])]);
    this.#lines = new Map();
    const lines = svg("g", { class: "rows", "aria-hidden": "true" });
    for (let row = 0; row < this.#rows; row += 1) {
      const d = pathOf(points(row).map(([left, at]) => [left ?? 0, at === null ? null : y(at)]));
      const line = svg("path", { class: "row-line", d });
      this.#lines.set(row, line);
      lines.append(line, svg("path", { class: "row-target", d, "data-row": row }, svg("title", {}, this.#view.look(row).name)));
    }
    const names = this.#dimensions.map(({ name }) => name).join(", ");
    const drawing = svg("svg", { width, height: HEIGHT, role: "group", "aria-label": `Parallel coordinates of ${names}; the table has the same values` }, lines);
    const edgeOf = (/** @type {number} */ index) => (index === 0 ? "start" : index === count - 1 ? "end" : "middle");
    const lineOf = (/** @type {number} */ index) => (x(1) - x(0) < NAME_WIDTH ? index % 2 : 0);
    drawing.append(...axes.map((axis, index) => axisNode(this.#dimensions[index].name, axis, { x: x(index), y, edge: edgeOf(index), line: lineOf(index) })));
    drawing.append(...this.#dimensions.map((dimension, index) => this.#brush(dimension, { x: x(index), bottom: y(0), top: y(1) })));
    this.#replace(drawing);
    this.restyle();
  }

  /** @param {Dimension} dimension @param {{x: number, bottom: number, top: number}} at */
  #brush(dimension, at) {
    return brushNode(dimension, this.#view.ranges.get(dimension.name) ?? null, at, (range) => this.#view.setRange(dimension.name, range));
  }

  /** The focus stays on its axis. @param {SVGElement} drawing */
  #replace(drawing) {
    const focused = this.#host.contains(document.activeElement) ? document.activeElement?.getAttribute("data-focus") : null;
    this.#host.replaceChildren(drawing);
    if (!focused) return;
    const axis = /** @type {SVGElement | null} */ (drawing.querySelector(`[data-focus="${CSS.escape(focused)}"]`));
    axis?.focus({ preventScroll: true });
  }

  /** Rows have another colour, or another one is highlighted. */
  restyle() {
    for (const [row, line] of this.#lines) {
      const { colour, isHidden, isFaded } = this.#view.look(row);
      line.style.stroke = colour;
      line.classList.toggle("faded", isFaded);
      line.classList.toggle("strong", this.#view.highlighted === row);
      for (const node of [line, line.nextElementSibling]) node?.classList.toggle("gone", isHidden);
    }
  }
}

/** A line with gaps where there is no value. @param {(number | null)[][]} points */
function pathOf(points) {
  let isDrawing = false;
  return points
    .map(([x, y]) => {
      const part = y === null ? "" : `${isDrawing ? "L" : "M"}${x} ${y}`;
      isDrawing = y !== null;
      return part;
    })
    .join("");
}

/**
 * All texts of the last axis are on its left, those of the first one on its right.
 *
 * @param {string} name @param {import("./value-axis.js").ValueAxis} axis
 * @param {{x: number, y: (at: number) => number, edge: "start" | "middle" | "end", line: number}} at
 */
function axisNode(name, axis, { x, y, edge, line }) {
  const place = edge === "end" ? { x: x - 5, "text-anchor": "end" } : { x: x + 5, "text-anchor": "start" };
  const ticks = axis.ticks.map(({ at, label: text }) => label(text, LABEL.tick, { class: "tick-label", ...place, y: y(at) + 4 }));
  return svg(
    "g",
    { class: "axis", "aria-hidden": "true" },
    svg("line", { x1: x, x2: x, y1: y(0), y2: y(1) }),
    label(name, LABEL.name, { class: "axis-name", x: x + { start: -MARGIN.side, middle: 0, end: MARGIN.side }[edge], y: MARGIN.top - 16 - 14 * line, "text-anchor": edge }),
    ...ticks,
  );
}

// --- axis brush: The part of an axis that mouse, finger and keyboard choose a range on: dragging along the axis, or
// with the focus the arrow keys, which move the upper end, with Shift the lower one. A click and Escape keep
// everything.

/** @typedef {import("./axis-range.js").Range} Range */

/** Of the area that reacts, and of the drawn range, in CSS pixels. */
const WIDTH = { target: 24, range: 12 };
/** A range of one value is this high. */
const PAD = 5;
/** A shorter drag is a click. */
const MIN_DRAG_PX = 4;

/**
 * @param {Dimension} dimension @param {Range | null} range @param {{x: number, bottom: number, top: number}} at pixels of the axis
 * @param {(range: Range | null) => void} onRange
 */
function brushNode(dimension, range, { x, bottom, top }, onRange) {
  const stops = stopsOf(dimension);
  const pixel = (/** @type {number} */ position) => bottom - position * (bottom - top);
  const shown = svg("rect", { class: "axis-range", x: x - WIDTH.range / 2, width: WIDTH.range, y: 0, height: 0 });
  const mark = (/** @type {number} */ from, /** @type {number} */ to) => {
    shown.setAttribute("y", String(Math.min(from, to) - PAD));
    shown.setAttribute("height", String(Math.abs(to - from) + 2 * PAD));
  };
  const [low, high] = indices(stops, range);
  if (range) mark(pixel(stops[low].at), pixel(stops[high].at));
  const text = `${stops[low].label} to ${stops[high].label}`;
  const target = svg("rect", { class: "axis-target", x: x - WIDTH.target / 2, width: WIDTH.target, y: top - PAD, height: bottom - top + 2 * PAD });
  const values = { "aria-valuemin": 0, "aria-valuemax": stops.length - 1, "aria-valuenow": high, "aria-valuetext": text, "aria-orientation": "vertical" };
  const title = `Range of ${dimension.name}`;
  const node = svg("g", { class: "axis-brush", tabindex: 0, role: "slider", "aria-label": title, ...values, "data-focus": title }, target, shown);
  listenToDrags(node, mark, (from, to) => {
    const [first, last] = [from, to].map((each) => (bottom - each) / (bottom - top)).sort((one, other) => one - other);
    onRange(Math.abs(to - from) < MIN_DRAG_PX ? null : rangeBetween(stops, first, last));
  });
  node.addEventListener("keydown", (event) => {
    const step = event.key === "ArrowUp" ? 1 : event.key === "ArrowDown" ? -1 : 0;
    if (!step && event.key !== "Escape") return;
    event.preventDefault();
    onRange(step ? withMovedEnd(stops, range, event.shiftKey ? "low" : "high", step) : null);
  });
  return node;
}

/** @param {SVGGElement} node @param {(from: number, to: number) => void} onMove @param {(from: number, to: number) => void} onEnd pixels within the drawing */
function listenToDrags(node, onMove, onEnd) {
  /** @type {number | null} */
  let from = null;
  const at = (/** @type {PointerEvent} */ event) => event.clientY - (node.ownerSVGElement?.getBoundingClientRect().top ?? 0);
  const end = () => {
    from = null;
    node.classList.remove("dragging");
  };
  node.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    from = at(event);
    node.classList.add("dragging");
    node.setPointerCapture(event.pointerId);
  });
  node.addEventListener("pointermove", (event) => from !== null && onMove(from, at(event)));
  node.addEventListener("pointercancel", end);
  node.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const begin = from;
    end();
    onEnd(begin, at(event));
  });
}
