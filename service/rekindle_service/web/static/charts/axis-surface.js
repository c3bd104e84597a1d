/**
 * Mouse, finger and keyboard on a chart or on the rows of a time axis: moving shows a cursor, a click picks its place,
 * dragging chooses a range, and a double click or Escape shows everything; plus and minus zoom.
 *
 * @import { Range, Scale } from "./chart-frame.js"
 * @typedef {object} Actions
 * @property {() => Scale} scale span of values and of pixels
 * @property {() => number} cursor from which a key moves it
 * @property {(at: number, direction: 1 | -1, isFar: boolean) => number} next to which an arrow moves it; far with the shift key
 * @property {(x: number | null, target: PointerEvent | null) => void} onCursor
 * @property {(x: number) => void} onMove the cursor, by the keyboard
 * @property {(direction: 1 | -1) => void} [onRank] the next rank, by the keyboard
 * @property {(x: number, target: PointerEvent | null) => void} onPick null: by the keyboard
 * @property {(range: Range | null) => void} onRange which may be beyond the axis
 */
import { h } from "../shared/dom.js";
import { pixelOf, valueAt } from "./chart-frame.js";

/** A shorter drag is a click. */
const MIN_DRAG_PX = 5;
/** Share of the range that a press of plus keeps. */
const ZOOM = 0.5;

export class AxisSurface {
  #node;
  #actions;
  #selection = h("div", { class: "axis-selection", hidden: true });
  /** @type {{from: number, to: number} | null} pixels */
  #drag = null;

  /** @param {HTMLElement} node that reacts to pointers @param {HTMLElement} slider in it, or itself, for the keyboard @param {Actions} actions */
  constructor(node, slider, actions) {
    this.#node = node;
    this.#actions = actions;
    node.append(this.#selection);
    node.addEventListener("pointermove", (event) => this.#onMove(event));
    node.addEventListener("pointerdown", (event) => this.#onDown(event));
    node.addEventListener("pointerup", (event) => this.#onUp(event));
    node.addEventListener("pointercancel", () => this.#endDrag());
    node.addEventListener("pointerleave", () => this.#drag || actions.onCursor(null, null));
    node.addEventListener("dblclick", (event) => isControl(event) || actions.onRange(null));
    slider.addEventListener("keydown", (event) => this.#onKey(event));
  }

  /** @param {PointerEvent} event */
  #onMove(event) {
    const pixel = this.#pixel(event);
    if (this.#drag) {
      this.#drag.to = pixel;
      this.#showSelection(this.#drag.from, pixel);
    }
    this.#actions.onCursor(valueAt(this.#actions.scale(), pixel), event);
  }

  /** A finger scrolls the page; its tap is a click. @param {PointerEvent} event */
  #onDown(event) {
    if (event.button !== 0 || isControl(event)) return;
    const pixel = this.#pixel(event);
    this.#drag = { from: pixel, to: pixel };
    if (event.pointerType !== "touch") this.#node.setPointerCapture(event.pointerId);
  }

  /** @param {PointerEvent} event */
  #onUp(event) {
    if (!this.#drag) return;
    const [from, to] = [this.#drag.from, this.#pixel(event)].sort((one, other) => one - other);
    this.#endDrag();
    const scale = this.#actions.scale();
    if (to - from < MIN_DRAG_PX) this.#actions.onPick(valueAt(scale, to), event);
    else if (event.pointerType !== "touch") this.#actions.onRange([valueAt(scale, from), valueAt(scale, to)]);
  }

  #endDrag() {
    this.#drag = null;
    this.#selection.hidden = true;
  }

  /** @param {number} from @param {number} to pixels */
  #showSelection(from, to) {
    this.#selection.hidden = false;
    this.#selection.style.left = `${Math.min(from, to)}px`;
    this.#selection.style.width = `${Math.abs(to - from)}px`;
  }

  /** @param {PointerEvent} event */
  #pixel(event) {
    const { from, to } = this.#actions.scale();
    return Math.max(from, Math.min(to, event.clientX - this.#node.getBoundingClientRect().left));
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { next, onMove, onPick, onRange, onRank } = this.#actions;
    const [scale, at] = [this.#actions.scale(), this.#actions.cursor()];
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowLeft: () => onMove(next(at, -1, event.shiftKey)),
      ArrowRight: () => onMove(next(at, 1, event.shiftKey)),
      ...(onRank && { ArrowUp: () => onRank(-1), ArrowDown: () => onRank(1) }),
      Home: () => onMove(scale.min),
      End: () => onMove(scale.max),
      "+": () => onRange(zoomed(scale, at, ZOOM)),
      "-": () => onRange(zoomed(scale, at, 1 / ZOOM)),
      Escape: () => onRange(null),
      Enter: () => onPick(at, null),
    };
    if (!(event.key in keys)) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  }
}

/** Whether a button or a link is meant. @param {Event} event */
const isControl = ({ target }) => target instanceof Element && target.closest("button, a") !== null;

/** @param {Scale} scale @param {number} at that stays where it is @param {number} factor @returns {Range} */
const zoomed = ({ min, max }, at, factor) => [at - (at - min) * factor, at + (max - at) * factor];

/** Put `node` at a value; hidden where that is not on the axis. @template {HTMLElement} Kind @param {Kind} node @param {Scale} scale @param {number | null} value */
export function place(node, scale, value) {
  node.hidden = value === null || value < scale.min || value > scale.max;
  if (!node.hidden && value !== null) node.style.left = `${pixelOf(scale, value)}px`;
  return node;
}
