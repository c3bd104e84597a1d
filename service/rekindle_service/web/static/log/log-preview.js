/**
 * What the log shows while the cursor of the time axis is moved: the lines of that moment, and what it showed before once
 * the cursor has left the axis. One moment after another is shown, and only while the log is within the window: a cursor that moves
 * for a second makes a few requests, however often it moves.
 *
 * @typedef {{time: number, attempt: number | null}} Moment seconds since 1970; null between attempts
 * @typedef {object} Previewed a log
 * @property {boolean} isInView
 * @property {() => () => Promise<void>} save returns what shows again what is shown now
 * @property {(moment: Moment) => Promise<void>} peek show a moment
 */

/** Milliseconds between two moments, and until the first: the pointer may only pass over the axis. */
const INTERVAL = 150;

export class LogPreview {
  #log;
  /** @type {Moment | null} */
  #wanted = null;
  /** @type {(() => Promise<void>) | null} null while there is no preview */
  #restore = null;
  #timer = 0;
  #isBusy = false;

  /** @param {() => Previewed} log the one that is shown */
  constructor(log) {
    this.#log = log;
  }

  get isActive() {
    return this.#restore !== null;
  }

  /** @param {Moment | null} moment at the cursor; null where it has left the axis */
  point(moment) {
    this.#wanted = moment;
    if (moment === null) this.#end();
    else if (!this.#timer && !this.#isBusy) this.#wait();
  }

  /** The user has chosen what the log shows: it stays. */
  keep() {
    this.#restore = null;
    this.point(null);
  }

  #wait() {
    this.#timer = setTimeout(() => void this.#step(), INTERVAL);
  }

  async #step() {
    this.#timer = 0;
    const moment = this.#wanted;
    const log = this.#log();
    if (moment === null || !log.isInView) return;
    this.#restore ??= log.save();
    await this.#run(() => log.peek(moment));
    if (this.#wanted === null) this.#end();
    else if (this.#wanted !== moment) this.#wait();
  }

  /** Before anything else is shown, what was there before the preview is again. */
  #end() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    const restore = this.#restore;
    if (this.#isBusy || !restore) return;
    this.#restore = null;
    void this.#run(restore).then(() => this.#wanted && this.#wait());
  }

  /** @param {() => Promise<void>} action */
  async #run(action) {
    this.#isBusy = true;
    await action().catch((error) => console.warn("the log of this moment could not be shown", error));
    this.#isBusy = false;
  }
}
