/**
 * Lines of several logs in the order in which they came, or those of one log that a filter lets through: a bounded window
 * that is moved by scrolling, follows the end, and goes to any time.
 *
 * @import { TimedLine, LogLines } from "../shared/api-types.d.ts"
 * @typedef {object} Choice
 * @property {number} attempt
 * @property {string[] | undefined} rank undefined: all
 * @property {string | undefined} stream undefined: both
 * @property {string} level the least serious one
 * @property {string} q text that lines must have; empty: any
 * @property {boolean} regex
 */
import { call, messageOf } from "../shared/api.js";
import { byId, h, setText } from "../shared/dom.js";
import { LogScroller } from "./log-scroller.js";
import { setRowTime } from "./log-permalink.js";
import { removedText } from "./log-window.js";

const PAGE = 500;
const MAX_ROWS = 3000;
/** Rows that are searched for at first, where few lines match the filter. */
const MIN_ROWS = 50;
/** Milliseconds between two polls for new lines. */
const INTERVAL = 1000;

export class MergedLog {
  #jobId;
  #onCursor;
  #onFollowing;
  #isPreview;
  #scroller = new LogScroller(byId("log-merged"), (position) => this.#onScroll(position));
  #lines = byId("log-merged-lines");
  #unfinished = byId("log-merged-unfinished");
  #note = byId("log-merged-note");
  /** @type {Choice | null} null while it is not shown */
  #choice = null;
  /** @type {{next: string | null, previous: string | null}} */
  #cursors = { next: null, previous: null };
  #hasOlder = false;
  #hasNewer = false;
  #following = true;
  #ended = false;
  /** How often something was opened: an answer to an earlier request is dropped. */
  #opened = 0;
  #busy = false;
  /** What was opened last has not been answered: nothing can be added to it. */
  #isOpening = false;
  #timer = 0;

  /** @param {string} jobId @param {Pick<import("./one-log.js").Viewer, "onCursor" | "onFollowing" | "isPreview">} viewer */
  constructor(jobId, { onCursor, onFollowing, isPreview }) {
    this.#jobId = jobId;
    this.#onCursor = onCursor;
    this.#onFollowing = onFollowing;
    this.#isPreview = isPreview;
    this.#lines.addEventListener("click", ({ target }) => this.#choose(target));
  }

  get isShown() {
    return this.#choice !== null;
  }

  /** Show the end of what is chosen; null shows nothing. @param {Choice | null} choice */
  async open(choice) {
    if (JSON.stringify(choice) === JSON.stringify(this.#choice)) return;
    this.#choice = choice;
    this.#scroller.hidden = choice === null;
    await this.follow();
  }

  /** To the end, and on from there. */
  async follow() {
    this.#setFollowing(true);
    await this.#load({ before: "end" });
    this.#pollSoon();
  }

  toggleFollowing() {
    if (this.#following) this.#setFollowing(false);
    else void this.follow();
  }

  get isInView() {
    return this.#scroller.isInView;
  }

  /** Show the lines around `at` (seconds since 1970), and highlight the first since then. @param {number} at */
  async goTo(at) {
    this.#setFollowing(false);
    this.#mark("marked", await this.#rowAt(at));
  }

  /** What a preview is put back to: the same first line, or the end if that was followed. */
  save() {
    const [following, opened, { top }] = [this.#following, this.#opened, this.#scroller];
    const at = timeOf(this.#rows.find((row) => this.#scroller.hiddenAbove(row) < row.offsetHeight));
    this.#following = false;
    return async () => {
      const isReplaced = opened !== this.#opened;
      this.#mark("pointed", undefined);
      if (following && isReplaced) return this.follow();
      if (following) this.#setFollowing(true);
      const row = isReplaced && at !== null ? await this.#rowAt(at) : undefined;
      if (row) this.#scroller.reveal(row, false);
      else this.#scroller.top = top;
      this.#pollSoon();
    };
  }

  /** @param {import("./log-viewer.js").Moment} moment */
  async peek({ time }) {
    const row = await this.#rowAt(time);
    if (this.#isPreview()) this.#mark("pointed", row);
  }

  get #rows() {
    return /** @type {HTMLElement[]} */ ([...this.#lines.children]);
  }

  /** The first line since `at`, or the last one; loaded where it is not. @param {number} at */
  async #rowAt(at) {
    const [first, last] = [timeOf(this.#lines.firstElementChild) ?? Infinity, timeOf(this.#lines.lastElementChild) ?? 0];
    if (this.#choice && ((at < first && this.#hasOlder) || (at > last && this.#hasNewer) || first > last)) {
      await this.#load({ at });
      await this.#loadMore("older");
    }
    return this.#rows.find((row) => (timeOf(row) ?? 0) >= at) ?? this.#rows.at(-1);
  }

  /** @param {{before?: string, at?: number}} where */
  async #load(where) {
    const opened = ++this.#opened;
    clearTimeout(this.#timer);
    this.#lines.replaceChildren();
    this.#unfinished.replaceChildren();
    this.#cursors = { next: null, previous: null };
    this.#hasOlder = this.#hasNewer = this.#ended = false;
    this.#isOpening = this.#choice !== null;
    if (!this.#choice) return;
    this.#lines.setAttribute("aria-busy", "true");
    const answer = await this.#read(where);
    if (opened !== this.#opened) return;
    this.#isOpening = false;
    this.#lines.setAttribute("aria-busy", "false");
    if (!answer) return;
    this.#cursors = { next: answer.next, previous: answer.previous };
    this.#hasOlder = "at" in where ? answer.previous !== null : !answer.complete;
    this.#hasNewer = "at" in where && !answer.complete;
    this.#lines.replaceChildren(...answer.items.map(rowOf));
    this.#showRest(answer);
    if (this.#following) this.#scroller.toEnd();
    while (this.#hasOlder && this.#lines.childElementCount < MIN_ROWS && opened === this.#opened) await this.#loadMore("older");
  }

  /** @param {"older" | "newer"} which */
  async #loadMore(which) {
    const older = which === "older";
    if (this.#busy || this.#isOpening || !(older ? this.#hasOlder : this.#hasNewer) || !this.#choice) return;
    this.#busy = true;
    const opened = this.#opened;
    try {
      const { next, previous } = this.#cursors;
      const answer = await this.#read(older ? { before: previous ?? "end" } : { after: next ?? undefined });
      if (!answer || opened !== this.#opened) return;
      if (older) await this.#prepend(answer);
      else this.#append(answer);
    } finally {
      this.#busy = false;
    }
    if (!this.#following) this.#onScroll({ ...this.#scroller.measure(), isByUser: this.#scroller.hasInput });
  }

  /** @param {LogLines} answer */
  async #prepend(answer) {
    this.#cursors.previous = answer.previous ?? this.#cursors.previous;
    this.#hasOlder = !answer.complete;
    await this.#scroller.keep(this.#rows[0], () => this.#lines.prepend(...answer.items.map(rowOf)));
    if (this.#following) this.#scroller.toEnd();
    this.#showRest({ ...answer, unfinished: null });
    while (this.#lines.childElementCount > MAX_ROWS) {
      this.#lines.lastElementChild?.remove();
      this.#hasNewer = true;
      this.#cursors.next = cursorOf(this.#lines.lastElementChild, "next");
    }
  }

  /** @param {LogLines} answer */
  #append(answer) {
    this.#cursors.next = answer.next ?? this.#cursors.next;
    this.#hasNewer = !answer.complete;
    this.#lines.append(...answer.items.map(rowOf));
    this.#showRest(answer);
    while (this.#following && this.#lines.childElementCount > MAX_ROWS) {
      this.#lines.firstElementChild?.remove();
      this.#hasOlder = true;
      this.#cursors.previous = cursorOf(this.#lines.firstElementChild, "previous");
    }
    if (this.#following) this.#scroller.toEnd();
  }

  /** @param {Omit<LogLines, "unfinished"> & {unfinished: TimedLine[] | null}} answer null: as before */
  #showRest({ unfinished, ended, has_times, complete }) {
    this.#ended = ended;
    if (unfinished) this.#unfinished.replaceChildren(...unfinished.map(rowOf));
    const empty = !this.#lines.childElementCount && !this.#unfinished.childElementCount;
    const untimed = "The keeper has not recorded when these lines came: they are sorted by rank and stream.";
    setText(this.#note, empty ? (complete ? "No line matches." : "Searching …") : has_times ? "" : untimed);
  }

  /** @param {{before?: string, after?: string, at?: number}} where @returns {Promise<LogLines | null>} */
  async #read(where) {
    const { q, regex, ...rest } = /** @type {Choice} */ (this.#choice);
    try {
      return await call("GET /jobs/{job_id}/log", { job_id: this.#jobId, ...rest, ...(q ? { q, regex } : {}), ...where, limit: PAGE });
    } catch (error) {
      setText(this.#note, messageOf(error));
      return null;
    }
  }

  /** New lines come by asking for them: their order is known only after all logs have been read up to one time. */
  #pollSoon() {
    clearTimeout(this.#timer);
    if (this.#choice && this.#following) this.#timer = setTimeout(() => void this.#poll(), INTERVAL);
  }

  async #poll() {
    if (!document.hidden && !this.#ended && this.#following && !this.#isOpening) {
      this.#hasNewer = true;
      if (this.#cursors.next) await this.#loadMore("newer");
      else await this.#load({ before: "end" }); // nothing has been read: the log was empty, or the request failed
    }
    this.#pollSoon();
  }

  /** The job has another state or attempt: an attempt that had ended may have a successor. */
  refresh() {
    this.#ended = false;
    this.#pollSoon();
  }

  /** @param {import("./log-scroller.js").Position} position */
  #onScroll({ isByUser, isUp, isAtEnd, isNearStart, isNearEnd }) {
    if (this.#isPreview()) return;
    if (!isAtEnd && isUp) this.#setFollowing(false);
    if (isByUser && isAtEnd && !this.#hasNewer && !this.#following && !isUp) {
      this.#setFollowing(true);
      this.#pollSoon();
    }
    if (isNearStart) void this.#loadMore("older");
    else if (isNearEnd && !this.#following) void this.#loadMore("newer");
  }

  /** @param {boolean} following */
  #setFollowing(following) {
    this.#following = following;
    if (this.#choice) this.#onFollowing(following);
  }

  /** @param {EventTarget | null} target */
  #choose(target) {
    const row = target instanceof Element ? /** @type {HTMLElement | null} */ (target.closest(".log-line")) : null;
    const time = timeOf(row);
    if (!row || time === null || !getSelection()?.isCollapsed) return;
    this.#setFollowing(false);
    this.#mark("marked", row, false);
    this.#onCursor({ time, rank: Number(row.dataset.rank), stream: row.dataset.stream ?? "stdout" });
  }

  /** Give this class to one row, and to no other. @param {"marked" | "pointed"} name @param {HTMLElement | undefined} row @param {boolean} [revealed] */
  #mark(name, row, revealed = true) {
    this.#lines.querySelector(`.${name}`)?.classList.remove(name);
    row?.classList.add(name);
    if (row && revealed) this.#scroller.reveal(row);
  }
}

/** @param {Element | null | undefined} row @returns {number | null} seconds since the epoch */
const timeOf = (row) => (row instanceof HTMLElement && row.dataset.at ? Number(row.dataset.at) : null);

/** @param {Element | null} row @param {"next" | "previous"} which */
function cursorOf(row, which) {
  if (!(row instanceof HTMLElement)) return null;
  const { rank, stream, offset, end } = row.dataset;
  return `${rank}-${stream}-${which === "next" ? end : offset}-${Number(end) - 1}`;
}

/** @param {TimedLine} line */
function rowOf({ rank, stream, offset, end, at, level, text, removed }) {
  const source = h("span", { class: "line-source", "data-source": `${rank}${stream === "stderr" ? " err" : ""}` });
  const gap = removed ? h("div", { class: "log-divider" }, removedText(removed)) : null;
  const values = { "data-rank": rank, "data-stream": stream, "data-offset": offset, "data-end": end, "data-level": level };
  const row = h("div", { class: "log-line", ...values }, gap, source, text);
  setRowTime(row, at);
  return row;
}
