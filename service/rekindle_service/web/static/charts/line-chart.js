/**
 * A line chart with a cursor and a range, for the mouse and the keyboard: arrows move the cursor from point to point,
 * plus and minus zoom, Escape shows everything. Dragging zooms too, and a double click shows everything.
 *
 * For a screen reader it is a slider along the horizontal axis, whose value is what the curves have at the cursor.
 *
 * @import { Content, Range } from "./chart-frame.js"
 * @typedef {object} Options
 * @property {number} [height] in CSS pixels
 * @property {string} [label] what is drawn, for a screen reader
 * @property {(x: number | null) => void} [onCursor] the user has moved the cursor
 * @property {(x: number) => void} [onPick] the user has clicked at a position, or pressed Enter there
 * @property {(range: Range | null) => void} [onRange] the user has chosen a range, or everything
 */
import { h } from "../shared/dom.js";
import { inNextFrame } from "../shared/timing.js";
import { onThemeChange } from "../shared/theme.js";
import { AxisSurface } from "./axis-surface.js";
import { frameOf, neighbour, xSpan } from "./chart-frame.js";
import { FONT, paintChart, paintCursor } from "./chart-painter.js";
import { readCursor, summaryOf, ChartTip } from "./chart-tip.js";
import { ColourResolver } from "./palette.js";

/** Size of a saved picture. */
const PICTURE = { width: 960, height: 540, scale: 2 };

export class LineChart {
  #host;
  #options;
  #curves = h("canvas", { "aria-hidden": "true" });
  #overlay = h("canvas", { "aria-hidden": "true" });
  #tip = new ChartTip();
  #probe = h("span", { hidden: true });
  #colours = new ColourResolver(this.#probe);
  /** @type {Content} */
  #content = { series: [], x: { kind: "number" } };
  /** Of the size of the element once it is painted. */
  #frame = frameOf(this.#content, null, { width: 0, height: 0 }, () => 0);
  /** @type {Range | null} */
  #range = null;
  /** @type {number | null} */
  #cursor = null;

  /** @param {HTMLElement} element empty @param {Options} [options] */
  constructor(element, options = {}) {
    this.#host = element;
    this.#options = options;
    element.classList.add("line-chart");
    element.style.height = `${options.height ?? 180}px`;
    element.tabIndex = 0;
    element.setAttribute("role", "slider");
    element.setAttribute("aria-label", options.label ?? "Chart");
    element.append(this.#curves, this.#overlay, this.#tip.node, this.#probe);
    this.#listen();
    new ResizeObserver(() => this.#redraw()).observe(element);
  }

  /** Draw this; a range of another axis does not stay. @param {Content} content */
  draw(content) {
    const { kind, title } = this.#content.x;
    if (content.x.kind !== kind || content.x.title !== title) this.#range = this.#cursor = null;
    this.#content = content;
    this.#redraw();
  }

  /** @param {number | null} x in the unit of the axis */
  setCursor(x) {
    if (x === this.#cursor) return;
    this.#cursor = x;
    this.#paintOverlay();
  }

  /** @param {Range | null} range in the unit of the axis; null for everything */
  setRange(range) {
    if (String(range) === String(this.#range)) return;
    this.#range = range;
    this.#redraw();
  }

  /** The chart as a picture with the ground of the page. @returns {Promise<Blob>} */
  toPng() {
    const { width, height, scale } = PICTURE;
    const canvas = h("canvas");
    const context = prepare(canvas, width, height, scale);
    context.fillStyle = this.#resolve("--surface");
    context.fillRect(0, 0, width, height);
    paintChart(context, this.#content, this.#frameFor(context, width, height), this.#resolve);
    return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the chart could not be saved as PNG"))), "image/png"));
  }

  #resolve = (/** @type {string} */ colour) => this.#colours.resolve(colour);

  #redraw() {
    inNextFrame(this.#paint);
  }

  #paint = () => {
    const [width, height] = [this.#host.clientWidth, this.#host.clientHeight];
    if (!width || !height) return;
    const context = prepare(this.#curves, width, height, devicePixelRatio);
    this.#frame = this.#frameFor(context, width, height);
    paintChart(context, this.#content, this.#frame, this.#resolve);
    this.#host.setAttribute("aria-description", summaryOf(this.#content, this.#frame));
    this.#paintOverlay();
  };

  /** @param {CanvasRenderingContext2D} context @param {number} width @param {number} height */
  #frameFor(context, width, height) {
    context.font = FONT;
    return frameOf(this.#content, this.#range, { width, height }, (text) => context.measureText(text).width);
  }

  #paintOverlay() {
    const { width, height, x } = this.#frame;
    const context = prepare(this.#overlay, width, height, devicePixelRatio);
    if (this.#cursor !== null) paintCursor(context, this.#content, this.#frame, this.#cursor, this.#resolve);
    const reading = this.#cursor === null ? null : readCursor(this.#content, this.#frame, this.#cursor);
    this.#tip.update(this.#isActive() ? reading : null, this.#frame);
    const values = { valuemin: x.min, valuemax: x.max, valuenow: this.#cursor ?? x.min, valuetext: reading?.text ?? "No position chosen" };
    for (const [name, value] of Object.entries(values)) this.#host.setAttribute(`aria-${name}`, String(value));
  }

  /** Only the chart that the user points at or has focused shows the values: a cursor may move in many at once. */
  #isActive() {
    return this.#host.matches(":hover, :focus-visible");
  }

  #listen() {
    new AxisSurface(this.#host, this.#host, {
      scale: () => this.#frame.x,
      cursor: () => this.#cursor ?? this.#frame.x.min,
      next: (at, direction) => neighbour(this.#content.series, at, direction, this.#frame.x),
      onCursor: (x, event) => this.#moveCursor(x, event?.offsetY),
      onMove: (x) => this.#moveCursor(x),
      onPick: (x) => this.#options.onPick?.(x),
      onRange: (range) => this.#chooseRange(range),
    });
    this.#host.addEventListener("blur", () => this.#moveCursor(null));
    onThemeChange(() => {
      this.#colours.forget();
      this.#redraw();
    });
  }

  /** @param {number | null} x @param {number | null} [height] pixel of the pointer; null with the keyboard */
  #moveCursor(x, height = null) {
    this.#tip.pointAt(height);
    if (x === this.#cursor) return this.#paintOverlay();
    this.setCursor(x);
    this.#options.onCursor?.(x);
  }

  /** @param {Range | null} range */
  #chooseRange(range) {
    const [first, last] = xSpan(this.#content);
    const [from, to] = range ? [Math.max(first, range[0]), Math.min(last, range[1])] : [first, last];
    const chosen = /** @type {Range | null} */ (from > first || to < last ? [from, to] : null);
    this.setRange(chosen);
    this.#options.onRange?.(chosen);
  }
}

/** A cleared canvas of this size, whose unit is the CSS pixel. @param {HTMLCanvasElement} canvas @param {number} width @param {number} height @param {number} scale */
function prepare(canvas, width, height, scale) {
  const [columns, rows] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== columns || canvas.height !== rows) [canvas.width, canvas.height] = [columns, rows];
  const context = canvas.getContext("2d");
  if (!context) throw new Error("this browser cannot draw on a canvas");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}
