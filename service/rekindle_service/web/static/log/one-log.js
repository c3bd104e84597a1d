/**
 * One log: following its end until the user scrolls up; paging through a log of any length by scrolling, by its slider
 * and to positions. While the user is further up nothing is added at the end: new output is fetched when they come
 * back.
 *
 * @import { LogLocation } from "./log-permalink.js"
 * @import { Moment } from "./log-viewer.js"
 * @import { Source } from "./log-window.js"
 * @typedef {object} Viewer
 * @property {() => Source} source the log that is shown; attempt 0 before the first
 * @property {() => boolean} isPreview what is shown is a preview of another moment
 * @property {(isFollowing: boolean, hasNew?: boolean) => void} onFollowing
 * @property {() => void} onChange other lines are shown
 * @property {(cursor: {time: number, rank: number, stream: string}) => void} onCursor the user has chosen a line
 */
import { call } from "../shared/api.js";
import { byId, setText } from "../shared/dom.js";
import { bytes } from "../shared/format.js";
import { showsTimes } from "./log-options.js";
import { END, linkTo, otherStream, setRowTime } from "./log-permalink.js";
import { LogRenderer } from "./log-renderer.js";
import { LogScroller } from "./log-scroller.js";
import { LogWindow } from "./log-window.js";

export class OneLog {
  #viewer;
  #older = byId("log-older");
  #renderer = new LogRenderer(byId("log-lines"), (attempt, offset) => linkTo({ ...this.#viewer.source(), attempt, offset }));
  #scroller = new LogScroller(byId("log"), (position) => this.#onScroll(position));
  #scrubber = new LogScrubber((offset) => void this.goTo({ ...this.#viewer.source(), offset }, { isOpen: true, isMarked: false }));
  #window;
  #times;
  #following = true;
  #paging = false;
  /** A preview has replaced the lines that were loaded. */
  #isReplaced = false;

  /** @param {string} jobId @param {Viewer} viewer */
  constructor(jobId, viewer) {
    this.#viewer = viewer;
    this.#window = new LogWindow(jobId, this.#renderer);
    this.#times = new LineTimes(jobId, this.#renderer, showsTimes, () => this.#stayAtEnd());
    this.#older.addEventListener("click", () => this.#page("older"));
    byId("log-lines").addEventListener("click", ({ target }) => this.#chooseLine(target));
  }

  /** @param {boolean} isShown */
  set isShown(isShown) {
    this.#scroller.hidden = !isShown;
    if (!isShown) byId("log-position").hidden = true;
  }

  get isInView() {
    return this.#scroller.isInView;
  }

  /** Something has been shown, or the user has left the end. */
  get isTouched() {
    return this.#window.size > 0 || !this.#following;
  }

  /** Which byte is at the top of the visible part. */
  get topOffset() {
    const position = this.#renderer.positionAt(this.#scroller.hiddenAbove(byId("log-lines")));
    return position && position.attempt === this.#viewer.source().attempt ? position.offset : 0;
  }

  /** Show the end of the log, and follow it. */
  async open() {
    this.#setFollowing(true);
    await this.#window.open(this.#viewer.source());
    this.#update();
  }

  /** @param {LogLocation} target @param {{isOpen: boolean, isMarked: boolean}} how this log is open already; its line is highlighted */
  async goTo(target, { isOpen, isMarked }) {
    this.#setFollowing(false);
    if (!isOpen || !this.#renderer.rowAt(target.attempt, target.offset)) await this.#window.openAt(this.#viewer.source(), target.offset);
    this.#reveal(target, isMarked);
    this.#update();
  }

  /** The byte of the line that came at `at` (seconds since 1970) or next; null where nobody knows. @param {Source} source @param {number} at */
  offsetAt(source, at) {
    return this.#times.offsetAt(source, at);
  }

  /** Continue with a later attempt below what is shown. @param {number} attempt */
  async switchAttempt(attempt) {
    await this.#window.switchAttempt(attempt, this.#following && !this.#viewer.isPreview());
    this.#update();
  }

  /** @param {{attempt: number, offset: number, next_offset: number, text: string}} event @param {boolean} isShown */
  async onChunk(event, isShown) {
    if (!isShown || !this.#following || this.#viewer.isPreview()) {
      this.#window.recordSize(event);
      if (!isShown || this.#viewer.isPreview()) return;
      this.#scrubber.show(this.topOffset, this.#window.size);
      return this.#viewer.onFollowing(false, true);
    }
    await this.#window.onChunk(event);
    this.#update();
  }

  /** Fetch what was missed, if the end is followed. */
  async catchUp() {
    if (!this.#following || this.#viewer.isPreview()) return;
    await this.#window.catchUp();
    this.#update();
  }

  toggleFollowing() {
    if (this.#following) this.#setFollowing(false);
    else void this.#resumeFollowing();
  }

  /** The times of the lines are to be shown. */
  showTimes() {
    this.#times.update(this.#viewer.source());
  }

  /** What a preview is put back to: the same lines at the same height, and the end if that was followed. */
  save() {
    const [{ top }, offset, { marked }] = [this.#scroller, this.topOffset, this.#renderer];
    this.#isReplaced = false;
    return async () => {
      this.#renderer.point(undefined);
      if (this.#isReplaced && this.#following) return this.open();
      if (this.#isReplaced) {
        const source = this.#viewer.source();
        await this.#window.openAt(source, offset);
        this.#reveal({ ...source, offset }, false);
        if (marked) this.#renderer.highlight(this.#renderer.rowAt(marked.attempt, marked.offset));
        return this.#update();
      }
      this.#scroller.top = top;
      await this.catchUp();
    };
  }

  /** @param {Moment} moment */
  async peek({ time, attempt }) {
    const chosen = this.#viewer.source();
    const source = { ...chosen, attempt: attempt ?? chosen.attempt };
    if (source.attempt === 0) return;
    const offset = await this.#times.offsetAt(source, time);
    if (offset === null || !this.#viewer.isPreview()) return;
    if (!this.#renderer.rowAt(source.attempt, offset)) {
      this.#isReplaced = true;
      await this.#window.openAt(source, offset);
      this.#times.update(source);
    }
    const row = this.#renderer.rowAt(source.attempt, offset);
    if (!row || !this.#viewer.isPreview()) return;
    this.#renderer.point(row);
    this.#scroller.reveal(row);
    this.#scrubber.show(offset, this.#window.size);
  }

  /** @param {LogLocation} target @param {boolean} isMarked */
  #reveal({ attempt, offset }, isMarked) {
    const row = this.#renderer.rowAt(attempt, offset) ?? (offset === END ? this.#renderer.lastRow : undefined);
    this.#renderer.highlight(isMarked ? row : undefined);
    if (row) this.#scroller.reveal(row, isMarked);
  }

  /** @param {EventTarget | null} target */
  #chooseLine(target) {
    const row = target instanceof Element ? /** @type {HTMLElement | null} */ (target.closest(".log-line")) : null;
    if (!row?.dataset.at || !getSelection()?.isCollapsed) return;
    this.#setFollowing(false);
    this.#renderer.highlight(row);
    const { rank, stream } = this.#viewer.source();
    this.#viewer.onCursor({ time: Number(row.dataset.at), rank, stream });
  }

  /** @param {import("./log-scroller.js").Position} position */
  #onScroll({ isByUser, isUp, isAtEnd, isNearStart, isNearEnd }) {
    if (this.#viewer.isPreview()) return;
    if (isByUser && isAtEnd && !this.#following && this.#window.caughtUp) return void this.#resumeFollowing();
    if (!isAtEnd && isUp) this.#setFollowing(false);
    if (isNearStart && isUp) void this.#page("older");
    else if (isNearEnd && !this.#following) void this.#page("newer");
    this.#scrubber.show(this.topOffset, this.#window.size);
  }

  /**
   * Load one more page at either end of the window, without moving what is visible.
   *
   * @param {"older" | "newer"} which
   */
  async #page(which) {
    const older = which === "older";
    if (this.#paging || !(older ? this.#window.hasOlder : this.#window.hasNewer)) return;
    this.#paging = true;
    this.#setFollowing(false);
    try {
      const anchor = (older ? this.#renderer.oldest : this.#renderer.latest)?.node;
      await this.#scroller.keep(anchor, () => (older ? this.#window.loadOlder() : this.#window.loadNewer()));
      this.#update();
    } finally {
      this.#paging = false;
    }
  }

  #resumeFollowing() {
    this.#setFollowing(true);
    return this.catchUp();
  }

  /** @param {boolean} following */
  #setFollowing(following) {
    this.#following = following;
    this.#viewer.onFollowing(following);
  }

  /** On a narrow screen the times of lines make them wrap, after they have been shown. */
  #stayAtEnd() {
    if (this.#following && !this.#viewer.isPreview()) this.#scroller.toEnd();
  }

  /** Adapt the controls and the scroll position to the changed content. */
  #update() {
    this.#older.hidden = !this.#window.hasOlder;
    byId("log-empty").hidden = this.#renderer.latest !== undefined;
    setText(byId("log-other"), `Show ${otherStream(this.#viewer.source().stream)}`);
    this.#stayAtEnd();
    this.#viewer.onChange();
    this.showTimes();
    this.#scrubber.show(this.topOffset, this.#window.size);
  }
}

// --- log scrubber: Where in a long log the user is, and a slider that leads to any other position.

/** Steps of the slider: in a log of a gigabyte each is 100 kB, about what one page of it shows. */
const STEPS = 10_000;
/** In a smaller log scrolling is quicker. */
const MIN_BYTES = 256 * 1024;

class LogScrubber {
  #row = byId("log-position");
  #slider = byId("log-slider", HTMLInputElement);
  #size = 0;
  #dragging = false;

  /** @param {(offset: number) => void} onSeek */
  constructor(onSeek) {
    this.#slider.max = String(STEPS);
    this.#slider.addEventListener("input", () => {
      this.#dragging = true;
      this.#showOffset(this.#chosen);
    });
    this.#slider.addEventListener("change", () => {
      this.#dragging = false;
      onSeek(this.#chosen);
    });
  }

  get #chosen() {
    return Math.floor((Number(this.#slider.value) / STEPS) * this.#size);
  }

  /** @param {number} offset @param {number} size bytes */
  show(offset, size) {
    this.#size = size;
    this.#row.hidden = size < MIN_BYTES;
    if (this.#dragging) return;
    this.#slider.value = String(size ? Math.round((offset / size) * STEPS) : 0);
    this.#showOffset(offset);
  }

  /** @param {number} offset */
  #showOffset(offset) {
    const text = `${bytes(offset)} of ${bytes(this.#size)}`;
    this.#slider.setAttribute("aria-valuetext", text);
    setText(byId("log-where"), text);
  }
}

// --- When the lines of the one log that is shown came, from the keeper's record: asked for while rows are shown, at
// most once in a few seconds.

/** Milliseconds between two requests. */
const INTERVAL = 2000;

class LineTimes {
  #jobId;
  #renderer;
  #isWanted;
  #onShown;
  #timer = 0;
  /** Whose rows are shown. @type {Source | null} */
  #source = null;
  /** Of the log that was asked for last. @type {{key: string, at: number, items: [offset: number, time: number][]} | null} */
  #known = null;

  /** @param {string} jobId @param {import("./log-renderer.js").LogRenderer} renderer @param {() => boolean} isWanted @param {() => void} onShown rows have got their times */
  constructor(jobId, renderer, isWanted, onShown) {
    this.#jobId = jobId;
    this.#renderer = renderer;
    this.#isWanted = isWanted;
    this.#onShown = onShown;
  }

  /** Show the times of the rows that have none yet. @param {Source} source */
  update(source) {
    this.#source = source;
    if (this.#timer || !this.#isWanted()) return;
    void this.#annotate(source);
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      if (this.#source) void this.#annotate(this.#source);
    }, INTERVAL);
  }

  /** @param {Source} source */
  async #annotate({ rank, stream, attempt }) {
    const rows = this.#renderer.rowsWithoutTime(attempt);
    if (!rows.length || attempt === 0) return;
    const [from, to] = [offsetOf(rows[0]), offsetOf(rows[rows.length - 1]) + 1];
    try {
      const { items } = await call("GET /jobs/{job_id}/ranks/{rank}/log/times", { job_id: this.#jobId, rank, stream, attempt, from, to });
      let index = 0;
      for (const row of rows) {
        while (index < items.length && items[index][0] <= offsetOf(row)) index += 1;
        if (index < items.length) setRowTime(row, items[index][1]);
      }
      this.#onShown();
    } catch (error) {
      console.warn("the times of the log could not be read", error);
    }
  }

  /**
   * The byte that came at `at` (seconds since 1970) or next; null where nobody knows.
   *
   * @param {Source} source @param {number} at
   */
  async offsetAt(source, at) {
    const items = await this.#timesOf(source, at);
    const index = items.findIndex(([, time]) => time >= at);
    return items.length ? (items[(index < 0 ? items.length : index) - 1]?.[0] ?? 0) : null;
  }

  /** The times of a whole log; asked for again where it may have grown past `at`. @param {Source} source @param {number} at */
  async #timesOf({ rank, stream, attempt }, at) {
    const key = `${rank}-${stream}-${attempt}`;
    const known = this.#known;
    const isOld = known === null || performance.now() - known.at > INTERVAL;
    if (known?.key === key && (!isOld || at <= (known.items.at(-1)?.[1] ?? 0))) return known.items;
    const { items } = await call("GET /jobs/{job_id}/ranks/{rank}/log/times", { job_id: this.#jobId, rank, stream, attempt });
    this.#known = { key, at: performance.now(), items };
    return items;
  }
}

/** @param {HTMLElement} row */
const offsetOf = (row) => Number(row.dataset.offset);
