/**
 * The part of an axis that mouse, finger and keyboard choose a range on: dragging along the axis, or with the focus the
 * arrow keys, which move the upper end, with Shift the lower one. A click and Escape keep everything.
 *
 * @typedef {import("./axis-range.js").Range} Range
 * @typedef {import("./row-view.js").Dimension} Dimension
 */
import { indices, rangeBetween, stopsOf, withMovedEnd } from "./axis-range.js";
import { svg } from "./svg.js";

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
export function brushNode(dimension, range, { x, bottom, top }, onRange) {
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
