/**
 * The log viewer: which rank, stream and attempt; one log or several; its end, a position, a moment, a match or a
 * permalink.
 *
 * @import { LogLocation } from "./log-permalink.js"
 * @import { Choice } from "./merged-log.js"
 * @typedef {{time: number, attempt: number | null}} Moment seconds since 1970; null between attempts
 * @typedef {object} Previewed a log
 * @property {boolean} isInView
 * @property {() => () => Promise<void>} save returns what shows again what is shown now
 * @property {(moment: Moment) => Promise<void>} peek show a moment
 */
import { urlOf } from "../shared/api.js";
import { byId } from "../shared/dom.js";
import { FollowButton, LogChoice } from "./log-choice.js";
import { makeOptions } from "./log-options.js";
import { otherStream, parsePermalink } from "./log-permalink.js";
import { LogSearch } from "./log-search.js";
import { MergedLog } from "./merged-log.js";
import { OneLog } from "./one-log.js";

export class LogViewer {
  #jobId;
  #onSource;
  #choice = new LogChoice(() => void this.#choose());
  #follow = new FollowButton(() => this.#toggleFollowing());
  /** @type {OneLog} */
  #one;
  /** @type {MergedLog} */
  #merged;
  /** @type {LogPreview} */
  #preview;
  /** @type {LogSearch} */
  #search;
  /** The latest attempt may log more. */
  #isLive = false;
  /** @type {LogLocation | null} target of the permalink, as long as no such rank or attempt is known */
  #pending = parsePermalink(location.hash);

  /**
   * @param {string} jobId
   * @param {(log: {rank: number, stream: string} | null) => void} onSource the log whose new output is needed
   * @param {(cursor: {time: number, rank: number, stream: string}) => void} onCursor the user has chosen a line; seconds
   */
  constructor(jobId, onSource, onCursor) {
    this.#jobId = jobId;
    this.#onSource = onSource;
    this.#preview = new LogPreview(() => (this.#merged.isShown ? this.#merged : this.#one));
    const isPreview = () => this.#preview.isActive;
    const onFollowing = (/** @type {boolean} */ isFollowing, hasNew = false) => this.#follow.show(isFollowing, hasNew);
    this.#merged = new MergedLog(jobId, { onCursor, onFollowing, isPreview });
    this.#one = new OneLog(jobId, { source: () => this.source, onChange: () => this.#search.highlight(), onCursor, onFollowing, isPreview });
    this.#search = new LogSearch(jobId, {
      source: () => this.source,
      scope: () => this.#choice.scope,
      latest: () => this.#choice.latest,
      offset: () => this.#one.topOffset,
      goTo: (target) => this.#goTo(target),
      filter: () => this.#merged.open(this.#choice.several(this.#search.filter)),
    });
    makeOptions(() => this.#one.showTimes());
    byId("log-other").addEventListener("click", () => this.#switchStream());
    addEventListener("hashchange", () => void this.#followLink());
    addEventListener("click", ({ target }) => this.#followSameLink(target));
  }

  /**
   * Show the line that came at `at` (seconds since 1970) or next: among several logs if they are shown, else in the log of
   * `source`, null for what is chosen.
   *
   * @param {number} at @param {{rank: number | null, stream: string | null, attempt: number | null}} source
   */
  async showTime(at, { rank, stream, attempt }) {
    this.#preview.keep();
    if (this.#merged.isShown) return this.#merged.goTo(at);
    const chosen = this.source;
    const target = { rank: rank ?? chosen.rank, stream: stream ?? chosen.stream, attempt: attempt ?? chosen.attempt };
    if (target.attempt === 0 || !this.#choice.has(target)) return;
    const offset = await this.#one.offsetAt(target, at);
    if (offset !== null) await this.#goTo({ ...target, offset });
  }

  /** Show the lines of a moment for as long as the cursor is there. @param {Moment | null} moment null: it has left */
  point(moment) {
    this.#preview.point(moment);
  }

  /** @param {boolean} isLive the latest attempt may log more, or another one follows */
  setLive(isLive) {
    this.#isLive = isLive;
    this.#follow.setLive(isLive && this.#choice.followed !== null);
  }

  /** The rank whose log is shown. */
  get rank() {
    return this.#choice.rank;
  }

  /** The log that is shown; attempt 0 before the first. */
  get source() {
    return this.#choice.source;
  }

  /**
   * @param {number} current ranks of the latest attempt
   * @param {number} max ranks of the largest one, whose logs stay readable
   */
  setRanks(current, max) {
    const changed = this.#choice.setRanks(current, max);
    if (this.#pending && this.#choice.has(this.#pending)) void this.#followLink();
    else if (changed) void this.#open();
  }

  /** @param {number} latest number of the latest attempt, 0 before the first */
  async setLatest(latest) {
    const before = this.#choice.latest;
    if (latest === before) return;
    this.#choice.setLatest(latest);
    this.setLive(this.#isLive);
    if (before === 0) return this.#pending ? this.#followLink() : this.#open();
    if (this.#choice.isLatest && this.#merged.isShown) return this.#open();
    if (this.#choice.isLatest) await this.#one.switchAttempt(latest);
    this.#offerDownloads();
  }

  /** @param {number} rank */
  select(rank) {
    if (this.rank === rank) return;
    this.#choice.select({ rank });
    void this.#choose();
  }

  /** Show a position of a log, if there is such a log, without scrolling the page. @param {LogLocation} target */
  show(target) {
    if (this.#choice.has(target)) void this.#goTo(target);
  }

  /**
   * @param {{attempt: number, rank: number, stream: string, offset: number, next_offset: number, text: string}} event
   */
  async onChunk(event) {
    if (event.attempt > this.#choice.latest) await this.setLatest(event.attempt);
    const followed = this.#choice.followed;
    if (followed === null || event.rank !== followed.rank || event.stream !== followed.stream) return;
    await this.#one.onChunk(event, !this.#merged.isShown);
  }

  /** Fetch what was missed while there was no connection. */
  async refresh() {
    this.#merged.refresh();
    if (this.#choice.followed !== null) await this.#one.catchUp();
  }

  /** The user chose another log: the permalink does not matter any more. */
  #choose() {
    this.#pending = null;
    return this.#open();
  }

  /** Progress bars and loggers write to stderr, which is easily overlooked when stdout is empty. */
  #switchStream() {
    this.#choice.select({ stream: otherStream(this.source.stream) });
    byId("log-stream").focus();
    return this.#choose();
  }

  async #open() {
    this.#preview.keep();
    this.#sourceChanged();
    if (this.source.attempt === 0) return;
    const several = this.#choice.several(this.#search.filter);
    await this.#showSeveral(several);
    if (!several) await this.#one.open();
  }

  /** Show `several` in place of one log, or with null one log. @param {Choice | null} several */
  #showSeveral(several) {
    this.#one.isShown = several === null;
    this.#search.setFiltering(several !== null);
    return this.#merged.open(several);
  }

  #sourceChanged() {
    this.setLive(this.#isLive);
    this.#onSource(this.#choice.followed);
    this.#search.onSourceChange();
    this.#offerDownloads();
  }

  /** Offer the whole log, and all of them, as files. */
  #offerDownloads() {
    byId("log-file", HTMLAnchorElement).href = urlOf("GET /jobs/{job_id}/ranks/{rank}/log/file", { job_id: this.#jobId, ...this.source });
    byId("log-zip", HTMLAnchorElement).href = urlOf("GET /jobs/{job_id}/logs.zip", { job_id: this.#jobId });
    byId("log-downloads").hidden = this.#choice.latest === 0;
  }

  /** Show what the page's URL points to, if there is such a log. */
  async #followLink() {
    const target = parsePermalink(location.hash);
    this.#pending = target && target.attempt <= this.#choice.latest ? target : null;
    if (!target || !this.#choice.has(target)) return this.#one.isTouched ? undefined : this.#open();
    byId("log-title").scrollIntoView({ block: "start" });
    await this.#goTo(target);
  }

  /** A link to the page's present URL changes no hash. @param {EventTarget | null} target */
  #followSameLink(target) {
    const link = target instanceof Element ? target.closest("a") : null;
    if (link?.hash && link.href === location.href) void this.#followLink();
  }

  /** Show the line there, and all lines around it. @param {LogLocation} target */
  async #goTo(target) {
    const { rank, stream, attempt } = this.source;
    this.#preview.keep();
    if (this.#merged.isShown) this.#choice.selectOne();
    void this.#showSeveral(null);
    this.#pending = null;
    this.#choice.select(target);
    const isOpen = rank === target.rank && stream === target.stream && attempt === target.attempt;
    if (!isOpen) this.#sourceChanged();
    await this.#one.goTo(target, { isOpen, isMarked: true });
  }

  #toggleFollowing() {
    (this.#merged.isShown ? this.#merged : this.#one).toggleFollowing();
  }
}

// --- What the log shows while the cursor of the time axis is moved: the lines of that moment, and what it showed
// before once the cursor has left the axis. One moment after another is shown, and only while the log is within the
// window: a cursor that moves for a second makes a few requests, however often it moves.

/** Milliseconds between two moments, and until the first: the pointer may only pass over the axis. */
const INTERVAL = 150;

class LogPreview {
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
