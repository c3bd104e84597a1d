/**
 * Drawing that follows a stream of changes: the first one is drawn in the next frame, those that follow at most once in
 * an interval. What the user does is drawn in the next frame, whenever it comes.
 */

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

// --- frame: One animation frame for all that is to be drawn, also for what the drawing of one part leads to in
// another.

/** @type {Set<() => void>} in the order of the requests */
const due = new Set();
let isRequested = false;

/** Call `draw` in the next frame, once, however often it is requested until then; not while the page is hidden. @param {() => void} draw */
export function inNextFrame(draw) {
  due.add(draw);
  if (!isRequested) requestAnimationFrame(drawAll);
  isRequested = true;
}

/** One that fails does not keep the others from being drawn. */
function drawAll() {
  try {
    for (const draw of due) {
      due.delete(draw);
      draw();
    }
  } finally {
    isRequested = due.size > 0;
    if (isRequested) requestAnimationFrame(drawAll);
  }
}

// --- debounced refresh:

/**
 * Refreshes of a whole page: one at a time, and none while the page is hidden. Requests that come meanwhile lead to one
 * refresh afterwards. So a slow server gets no second request before it has answered, and no old answer overwrites a
 * newer one.
 */
export class DebouncedRefresh {
  #refresh;
  #delay;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #running = false;
  #requested = false;
  #urgent = false;
  #started = false;

  /**
   * @param {() => Promise<unknown>} refresh fetches and shows
   * @param {number} delay milliseconds in which many events lead to one refresh
   */
  constructor(refresh, delay) {
    this.#refresh = refresh;
    this.#delay = delay;
    document.addEventListener("visibilitychange", () => this.#requested && this.now());
  }

  /** Something has changed. */
  soon() {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.#run();
    }, this.#delay);
  }

  /** The user waits for it. */
  now() {
    this.#urgent = true;
    void this.#run();
  }

  /** The first one also runs in a hidden tab, which is recognised by its title. */
  async #run() {
    this.#requested = true;
    if (this.#running || (document.hidden && this.#started)) return;
    this.#running = this.#started = true;
    this.#requested = this.#urgent = false;
    try {
      await this.#refresh();
    } catch (error) {
      console.warn("the page could not be refreshed", error);
    } finally {
      this.#running = false;
    }
    if (this.#requested) this.#urgent ? void this.#run() : this.soon();
  }
}

// --- latest wins:

/**
 * Answers that arrive in another order than their requests were sent.
 *
 * An answer older than the one shown is ignored. The rule is not "only the answer to the latest request counts": where
 * requests are more frequent than answers, nothing would ever be shown.
 *
 * @template Answer
 * @param {() => Promise<Answer>} fetchAnswer @param {(answer: Answer) => void} show
 */
export function latestWins(fetchAnswer, show) {
  let requested = 0;
  let shown = 0;
  const refetch = async () => {
    const number = ++requested;
    const answer = await fetchAnswer();
    if (number < shown) return;
    shown = number;
    show(answer);
  };
  /** A pushed answer is newer than every answer that is still awaited. @param {Answer} answer */
  const push = (answer) => {
    shown = ++requested;
    show(answer);
  };
  return Object.assign(refetch, { push });
}

/** Call `listener` in this interval while the page is visible. @param {number} seconds @param {() => void} listener */
export const every = (seconds, listener) => void setInterval(() => document.hidden || listener(), 1000 * seconds);

// --- ticker: One timer for every text that changes with time alone: heartbeats, ages, "retry in 3 s".

/** @type {Set<() => void>} */
const listeners = new Set();

every(1, () => listeners.forEach((listener) => listener()));

/** Call `listener` about once a second while the page is visible. @param {() => void} listener */
export const everySecond = (listener) => void listeners.add(listener);
