/**
 * The scrolled part of a log, and how near it is to either end.
 *
 * @typedef {object} Position
 * @property {boolean} isByUser the user has scrolled: a changed layout moves it as well, and the event of a change by the page
 * itself may come late
 * @property {boolean} isUp the user has scrolled towards the beginning
 * @property {boolean} isAtEnd
 * @property {boolean} isNearStart more is fetched before the user gets to the edge of what is loaded
 * @property {boolean} isNearEnd
 */

/** Distance from the end, in CSS pixels, that still counts as the end. */
const END_TOLERANCE = 12;
/** Distance from the loaded part's edge, in CSS pixels, at which more is fetched. */
const PREFETCH_DISTANCE = 600;
/** Where a row is that was looked up, as a share of the height. */
const LEAD = 1 / 3;
/** What a user scrolls with; the pointer only where it drags the scrollbar, which is no child of the log. */
const INPUTS = ["wheel", "touchmove", "keydown", "pointerdown"];
/** Keys that scroll down. */
const DOWN = ["End", "PageDown", "ArrowDown", " "];

export class LogScroller {
  #node;
  #onScroll;
  #lastTop = 0;
  #hasInput = false;

  /** @param {HTMLElement} node @param {(position: Position) => void} onScroll */
  constructor(node, onScroll) {
    this.#node = node;
    this.#onScroll = onScroll;
    for (const type of INPUTS) node.addEventListener(type, (event) => this.#onInput(event), { passive: true });
    node.addEventListener("scroll", () => onScroll(this.measure()), { passive: true });
  }

  /** At the end there is nothing to scroll, and no other event. @param {Event} event */
  #onInput(event) {
    this.#hasInput ||= event.type !== "pointerdown" || event.target === this.#node;
    if (this.#below <= END_TOLERANCE && isDownward(event)) this.#onScroll({ ...this.measure(), isByUser: true });
  }

  /** Pixels below the visible part. */
  get #below() {
    const { scrollTop, scrollHeight, clientHeight } = this.#node;
    return scrollHeight - scrollTop - clientHeight;
  }

  /** @param {boolean} isHidden */
  set hidden(isHidden) {
    this.#node.hidden = isHidden;
  }

  /** In CSS pixels. */
  get top() {
    return this.#node.scrollTop;
  }

  set top(top) {
    this.#node.scrollTop = top;
    this.#lastTop = this.#node.scrollTop;
  }

  /** The user has scrolled since the page went to the end or to a row. */
  get hasInput() {
    return this.#hasInput;
  }

  /** Some of it is within the window. */
  get isInView() {
    const { top, bottom } = this.#node.getBoundingClientRect();
    return !this.#node.hidden && bottom > 0 && top < innerHeight;
  }

  toEnd() {
    this.#hasInput = false;
    this.top = this.#node.scrollHeight;
  }

  /** Scroll to `row`: with some lines before it, or to the top. @param {HTMLElement} row @param {boolean} [withLead] */
  reveal(row, withLead = true) {
    this.#hasInput = false;
    this.top += this.#distanceTo(row) - (withLead ? this.#node.clientHeight * LEAD : 0);
  }

  /** Pixels from the top of the visible part down to `node`; negative above it. @param {HTMLElement} node */
  #distanceTo(node) {
    return node.getBoundingClientRect().top - this.#node.getBoundingClientRect().top;
  }

  /** Pixels of `node` above the visible part. @param {HTMLElement} node */
  hiddenAbove(node) {
    return Math.max(0, -this.#distanceTo(node));
  }

  /** Change the content without moving what is visible. @param {HTMLElement | undefined} anchor that stays in its place @param {() => unknown} change */
  async keep(anchor, change) {
    const before = anchor?.getBoundingClientRect().top ?? 0;
    await change();
    const moved = anchor?.isConnected ? anchor.getBoundingClientRect().top - before : 0;
    const top = this.#node.scrollTop;
    this.#node.scrollTop += moved;
    this.#lastTop += this.#node.scrollTop - top; // what the user has scrolled meanwhile is still to be noticed
  }

  /** @returns {Position} */
  measure() {
    const [{ scrollTop }, below] = [this.#node, this.#below];
    const [isByUser, isUp] = [this.#hasInput && scrollTop !== this.#lastTop, scrollTop < this.#lastTop];
    this.#lastTop = scrollTop;
    return { isByUser, isUp, isAtEnd: below <= END_TOLERANCE, isNearStart: scrollTop < PREFETCH_DISTANCE, isNearEnd: below < PREFETCH_DISTANCE };
  }
}

/** @param {Event} event */
const isDownward = (event) => (event instanceof WheelEvent && event.deltaY > 0) || (event instanceof KeyboardEvent && DOWN.includes(event.key) && !event.shiftKey);
