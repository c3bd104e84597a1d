/**
 * A line chart with a cursor and a range, for the mouse and the keyboard: arrows move the cursor from point to point,
 * plus and minus zoom, Escape shows everything. Dragging zooms too, and a double click shows everything.
 *
 * For a screen reader it is a slider along the horizontal axis, whose value is what the curves have at the cursor.
 *
 * @import { Content, Frame, Range } from "./chart-frame.js"
 * @typedef {object} Options
 * @property {number} [height] in CSS pixels
 * @property {number} [left] width of the value axis in CSS pixels, so that charts align; measured where not given
 * @property {string} [label] what is drawn, for a screen reader
 * @property {(x: number | null) => void} [onCursor] the user has moved the cursor
 * @property {(x: number) => void} [onPick] the user has clicked at a position, or pressed Enter there
 * @property {(range: Range | null) => void} [onRange] the user has chosen a range, or everything
 */
import { h } from "../shared/dom.js";
import { inNextFrame } from "../shared/timing.js";
import { onThemeChange } from "../shared/theme.js";
import { frameOf, neighbour, valueAt, xSpan } from "./chart-frame.js";
import { FONT, paintChart, paintCursor, paintSelection } from "./chart-painter.js";
import { readCursor, summaryOf, ChartTip } from "./chart-tip.js";
import { ColourResolver } from "./palette.js";

/** A shorter drag is a click. */
const MIN_DRAG_PX = 5;
/** Share of the range that a press of plus keeps. */
const ZOOM = 0.5;
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
  #closed = new AbortController();
  #sizes = new ResizeObserver(() => this.#redraw());
  /** @type {Content} */
  #content = { series: [], x: { kind: "number" } };
  /** @type {Frame | null} */
  #frame = null;
  /** @type {Range | null} */
  #range = null;
  /** @type {number | null} */
  #cursor = null;
  /** @type {{from: number, to: number} | null} pixels */
  #drag = null;

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
    this.#sizes.observe(element);
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

  close() {
    this.#closed.abort();
    this.#sizes.disconnect();
    this.#host.replaceChildren();
  }

  #resolve = (/** @type {string} */ colour) => this.#colours.resolve(colour);

  #redraw() {
    inNextFrame(this.#paint);
  }

  #paint = () => {
    if (this.#closed.signal.aborted) return;
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
    return frameOf(this.#content, this.#range, { width, height, left: this.#options.left }, (text) => context.measureText(text).width);
  }

  #paintOverlay() {
    if (!this.#frame) return;
    const { width, height, x } = this.#frame;
    const context = prepare(this.#overlay, width, height, devicePixelRatio);
    if (this.#drag) paintSelection(context, this.#frame, this.#drag.from, this.#drag.to, this.#resolve);
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
    const on = (/** @type {string} */ type, /** @type {(event: any) => void} */ listener) => this.#host.addEventListener(type, listener, { signal: this.#closed.signal });
    on("pointermove", (event) => this.#onMove(event));
    on("pointerdown", (event) => this.#onDown(event));
    on("pointerup", () => this.#onUp());
    on("pointercancel", () => this.#endDrag());
    on("pointerleave", () => this.#drag || this.#moveCursor(null));
    on("dblclick", () => this.#chooseRange(null));
    on("keydown", (event) => this.#onKey(event));
    on("blur", () => this.#moveCursor(null));
    onThemeChange(() => {
      this.#colours.forget();
      this.#redraw();
    }, this.#closed.signal);
  }

  /** @param {PointerEvent} event */
  #onMove(event) {
    if (!this.#frame) return;
    const left = this.#pixel(event);
    if (this.#drag) this.#drag.to = left;
    this.#tip.pointAt(event.offsetY);
    this.#moveCursor(valueAt(this.#frame.x, left));
    this.#paintOverlay();
  }

  /** @param {PointerEvent} event */
  #onDown(event) {
    if (!this.#frame || event.button !== 0 || event.pointerType === "touch") return; // a finger scrolls the page
    const left = this.#pixel(event);
    this.#drag = { from: left, to: left };
    this.#host.setPointerCapture(event.pointerId);
  }

  #onUp() {
    if (!this.#drag || !this.#frame) return;
    const { from, to } = this.#drag;
    this.#endDrag();
    if (Math.abs(to - from) < MIN_DRAG_PX) return this.#options.onPick?.(valueAt(this.#frame.x, to));
    this.#chooseRange([valueAt(this.#frame.x, Math.min(from, to)), valueAt(this.#frame.x, Math.max(from, to))]);
  }

  #endDrag() {
    this.#drag = null;
    this.#paintOverlay();
  }

  /** The pixel of the plot at the pointer. @param {PointerEvent} event */
  #pixel(event) {
    const { from = 0, to = 0 } = this.#frame?.x ?? {};
    return Math.max(from, Math.min(to, event.clientX - this.#host.getBoundingClientRect().left));
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (!this.#frame || event.ctrlKey || event.metaKey || event.altKey) return;
    const { x } = this.#frame;
    const at = this.#cursor ?? x.min;
    const step = (/** @type {1 | -1} */ direction) => this.#moveCursor(neighbour(this.#content.series, at, direction, x));
    /** @type {Record<string, () => void>} */
    const actions = {
      ArrowRight: () => step(1),
      ArrowLeft: () => step(-1),
      Home: () => this.#moveCursor(x.min),
      End: () => this.#moveCursor(x.max),
      "+": () => this.#zoom(at, ZOOM),
      "-": () => this.#zoom(at, 1 / ZOOM),
      Escape: () => this.#chooseRange(null),
      ...(this.#options.onPick && { Enter: () => this.#options.onPick?.(at) }),
    };
    if (!(event.key in actions)) return;
    event.preventDefault();
    event.stopPropagation();
    this.#tip.pointAt(null);
    actions[event.key]();
  }

  /** Make the range this much wider, with `at` where it is. @param {number} at @param {number} factor */
  #zoom(at, factor) {
    if (!this.#frame) return;
    const { min, max } = this.#frame.x;
    const [first, last] = xSpan(this.#content);
    const [from, to] = [Math.max(first, at - (at - min) * factor), Math.min(last, at + (max - at) * factor)];
    this.#chooseRange(from > first || to < last ? [from, to] : null);
  }

  /** @param {number | null} x */
  #moveCursor(x) {
    if (x === this.#cursor) return;
    this.setCursor(x);
    this.#options.onCursor?.(x);
  }

  /** @param {Range | null} range */
  #chooseRange(range) {
    this.setRange(range);
    this.#options.onRange?.(range);
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
