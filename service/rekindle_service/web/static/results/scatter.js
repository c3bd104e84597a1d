/**
 * Two columns against each other: a point for each row. Pointing at one highlights its row; a click hides it.
 *
 * @typedef {import("./row-view.js").Dimension} Dimension
 * @typedef {import("./row-view.js").RowView} RowView
 */
import { listen } from "./row-parts.js";
import { label, svg } from "./svg.js";
import { axisFor, valueText } from "./value-axis.js";

const HEIGHT = 260;
const MARGIN = { top: 12, right: 26, bottom: 28, left: 74 };
/** Between the outermost points and the axes, in CSS pixels. */
const INSET = 12;
const PIXELS_PER_TICK = { x: 90, y: 40 };
const LABEL = { x: 12, y: 11 }; // characters

export class Scatter {
  #host;
  #view;
  /** @type {Map<number, SVGCircleElement>} */
  #points = new Map();
  #sizes = new ResizeObserver(() => this.#draw());
  /** @type {[Dimension, Dimension] | null} */
  #axes = null;
  #rows = 0;

  /** @param {HTMLElement} host @param {RowView} view */
  constructor(host, view) {
    this.#host = host;
    this.#view = view;
    listen(host, view, "[data-row]");
    this.#sizes.observe(host);
  }

  /** @param {Dimension} x @param {Dimension} y @param {number} rows */
  show(x, y, rows) {
    this.#axes = [x, y];
    this.#rows = rows;
    this.#draw();
  }

  #draw() {
    const width = this.#host.clientWidth;
    if (!this.#axes || !width) return;
    const [across, up] = this.#axes;
    const right = width - MARGIN.right;
    const bottom = HEIGHT - MARGIN.bottom;
    const [xAxis, yAxis] = [axisFor(across.values, Math.max(2, Math.floor((right - MARGIN.left) / PIXELS_PER_TICK.x))), axisFor(up.values, Math.floor(bottom / PIXELS_PER_TICK.y))];
    const x = (/** @type {number} */ at) => MARGIN.left + INSET + at * (right - MARGIN.left - 2 * INSET);
    const y = (/** @type {number} */ at) => bottom - INSET - at * (bottom - MARGIN.top - 2 * INSET);
    this.#points = new Map();
    for (let row = 0; row < this.#rows; row += 1) {
      const [left, top] = [xAxis.position(across.values[row]), yAxis.position(up.values[row])];
      if (left === null || top === null) continue;
      const title = svg("title", {}, `${this.#view.look(row).name}: ${across.name} ${valueText(across.values[row])}, ${up.name} ${valueText(up.values[row])}`);
      this.#points.set(row, svg("circle", { class: up.best.includes(row) ? "point best-point" : "point", cx: x(left), cy: y(top), r: 5, "data-row": row }, title));
    }
    const frame = svg("path", { class: "frame", d: `M${MARGIN.left} ${MARGIN.top}V${bottom}H${right}` });
    const ticks = [
      ...xAxis.ticks.map((tick) => label(tick.label, LABEL.x, { class: "tick-label", x: x(tick.at), y: bottom + 16, "text-anchor": "middle" })),
      ...yAxis.ticks.map((tick) => label(tick.label, LABEL.y, { class: "tick-label", x: MARGIN.left - 6, y: y(tick.at) + 4, "text-anchor": "end" })),
    ];
    const name = `${up.name} over ${across.name}; the table has the same values`;
    this.#host.replaceChildren(svg("svg", { width, height: HEIGHT, role: "img", "aria-label": name }, frame, ...ticks, ...this.#points.values()));
    this.restyle();
  }

  /** Rows have another colour, or another one is highlighted. */
  restyle() {
    for (const [row, point] of this.#points) {
      const { colour, isHidden, isFaded } = this.#view.look(row);
      point.style.fill = colour;
      point.classList.toggle("faded", isFaded);
      point.classList.toggle("strong", this.#view.highlighted === row);
      point.classList.toggle("gone", isHidden);
    }
  }
}
