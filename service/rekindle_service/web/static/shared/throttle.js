/**
 * Drawing that follows a stream of changes: the first one is drawn in the next frame, those that follow at most once in
 * an interval. What the user does is drawn in the next frame, whenever it comes.
 */
import { inNextFrame } from "./frame.js";

export class Throttle {
  #interval;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #drawnAt = -Infinity;
  #draw;

  /** @param {() => void} draw called once a frame at most, and not while the page is hidden @param {number} interval milliseconds */
  constructor(draw, interval) {
    this.#interval = interval;
    this.#draw = () => {
      this.#drawnAt = performance.now();
      draw();
    };
  }

  /** Something has changed: draw it when the interval since the last time is over. */
  soon() {
    const wait = this.#drawnAt + this.#interval - performance.now();
    if (wait <= 0) return this.now();
    this.#timer ??= setTimeout(() => this.now(), wait);
  }

  /** Draw in the next frame. */
  now() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    inNextFrame(this.#draw);
  }
}
