/**
 * The log viewer: which rank, stream and attempt; following the end until the user scrolls up; paging through a log of
 * any length by scrolling, by its slider, by search and by permalinks.
 *
 * While the user is further up nothing is added at the end: new output is fetched when they come back.
 *
 * @import { LogLocation } from "./log-permalink.js"
 */
import { urlOf } from "../shared/api.js";
import { byId, setText } from "../shared/dom.js";
import { END, linkTo, otherStream, parsePermalink } from "./log-permalink.js";
import { LineTimes } from "./line-times.js";
import { LogChoice } from "./log-choice.js";
import { makeOptions, showsTimes } from "./log-options.js";
import { LogRenderer } from "./log-renderer.js";
import { LogScrubber } from "./log-scrubber.js";
import { LogSearch } from "./log-search.js";
import { LogWindow } from "./log-window.js";
import { MergedLog } from "./merged-log.js";

/** Distance from the end, in CSS pixels, that still counts as the end. */
const END_TOLERANCE = 12;
/** Distance from the loaded part's edge, in CSS pixels, at which more is fetched. */
const PREFETCH_DISTANCE = 600;

export class LogViewer {
  #jobId;
  #onSource;
  #choice = new LogChoice(() => void this.#choose());
  #follow = byId("log-follow");
  #older = byId("log-older");
  #scroller = byId("log");
  #renderer = new LogRenderer(byId("log-lines"), (attempt, offset) => linkTo({ ...this.source, attempt, offset }));
  #window;
  #merged;
  #times;
  #onCursor;
  #scrubber = new LogScrubber((offset) => void this.#goTo({ ...this.source, offset }, false));
  /** @type {LogSearch} */
  #search;
  #following = true;
  #paging = false;
  #lastTop = 0;
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
    this.#onCursor = onCursor;
    this.#window = new LogWindow(jobId, this.#renderer);
    this.#merged = new MergedLog(jobId, onCursor, (following) => this.#showFollowing(following));
    this.#times = new LineTimes(jobId, this.#renderer, showsTimes);
    makeOptions(() => this.#times.update(this.source));
    byId("log-lines").addEventListener("click", ({ target }) => this.#chooseLine(target));
    this.#search = new LogSearch(jobId, { source: () => this.source, offset: () => this.#topOffset(), goTo: (target) => this.#goTo(target, true), filter: () => this.#merged.open(this.#choice.several(this.#search.filter)) });
    this.#follow.addEventListener("click", () => this.#toggleFollowing());
    this.#older.addEventListener("click", () => this.#page("older"));
    byId("log-other").addEventListener("click", () => this.#switchStream());
    this.#scroller.addEventListener("scroll", () => this.#onScroll(), { passive: true });
    addEventListener("hashchange", () => void this.#followLink());
    addEventListener("click", ({ target }) => this.#followSameLink(target));
  }

  /**
   * Show the line that came at `at` (seconds since the epoch) or next: among several logs if they are shown, else in the
   * log of `source`, null for what is chosen.
   *
   * @param {number} at @param {{rank: number | null, stream: string | null, attempt: number | null}} source
   */
  async showTime(at, { rank, stream, attempt }) {
    if (this.#merged.isShown) return this.#merged.goTo(at);
    const chosen = this.source;
    const target = { rank: rank ?? chosen.rank, stream: stream ?? chosen.stream, attempt: attempt ?? chosen.attempt };
    if (target.attempt === 0 || !this.#choice.has(target)) return;
    const offset = await this.#times.offsetAt(target, at);
    if (offset !== null) await this.#goTo({ ...target, offset }, true);
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
    if (before === 0) return this.#pending ? this.#followLink() : this.#open();
    if (this.#choice.isLatest && this.#merged.isShown) return this.#open();
    if (this.#choice.isLatest) await this.#window.switchAttempt(latest, this.#following);
    this.#offerDownloads();
    this.#update();
  }

  /** @param {number} rank */
  select(rank) {
    if (this.rank === rank) return;
    this.#choice.select({ rank });
    void this.#choose();
  }

  /** Show a position of a log, if there is such a log, without scrolling the page. @param {LogLocation} target */
  show(target) {
    if (this.#choice.has(target)) void this.#goTo(target, true);
  }

  /**
   * @param {{attempt: number, rank: number, stream: string, offset: number, next_offset: number, text: string}} event
   */
  async onChunk(event) {
    if (event.attempt > this.#choice.latest) await this.setLatest(event.attempt);
    const followed = this.#choice.followed;
    if (followed === null || event.rank !== followed.rank || event.stream !== followed.stream) return;
    if (this.#merged.isShown) return this.#window.recordSize(event);
    if (!this.#following) {
      this.#window.recordSize(event);
      this.#scrubber.show(this.#topOffset(), this.#window.size);
      return setText(this.#follow, "New output below ↓");
    }
    await this.#window.onChunk(event);
    this.#update();
  }

  /** Fetch what was missed while there was no connection. */
  async refresh() {
    this.#merged.refresh();
    if (this.#choice.followed !== null && this.#following) await this.#catchUp();
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
    this.#sourceChanged();
    if (this.source.attempt === 0) return;
    const several = this.#choice.several(this.#search.filter);
    await this.#showSeveral(several);
    if (several) return;
    this.#setFollowing(true);
    await this.#window.open(this.source);
    this.#update();
  }

  /** Show `several` in place of one log, or with null one log. @param {import("./merged-log.js").Choice | null} several */
  #showSeveral(several) {
    this.#scroller.hidden = several !== null;
    if (several) byId("log-position").hidden = true;
    this.#search.setFiltering(several !== null);
    return this.#merged.open(several);
  }

  /** A position in a log is shown with all lines around it. */
  #showOneLog() {
    this.#choice.selectOne();
    void this.#showSeveral(null);
  }

  /** @param {EventTarget | null} target */
  #chooseLine(target) {
    const row = target instanceof Element ? /** @type {HTMLElement | null} */ (target.closest(".log-line")) : null;
    if (!row?.dataset.at || !getSelection()?.isCollapsed) return;
    this.#setFollowing(false);
    this.#renderer.highlight(row);
    const { rank, stream } = this.source;
    this.#onCursor({ time: Number(row.dataset.at), rank, stream });
  }

  #sourceChanged() {
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
    if (!target || !this.#choice.has(target)) return this.#window.size || !this.#following ? undefined : this.#open();
    byId("log-title").scrollIntoView({ block: "start" });
    await this.#goTo(target, true);
  }

  /** A link to the page's present URL changes no hash. @param {EventTarget | null} target */
  #followSameLink(target) {
    const link = target instanceof Element ? target.closest("a") : null;
    if (link?.hash && link.href === location.href) void this.#followLink();
  }

  /** @param {LogLocation} target @param {boolean} highlighted whether to highlight the line there */
  async #goTo(target, highlighted) {
    const before = this.source;
    if (this.#merged.isShown) this.#showOneLog();
    this.#pending = null;
    this.#choice.select(target);
    const same = before.rank === target.rank && before.stream === target.stream && before.attempt === target.attempt;
    if (!same) this.#sourceChanged();
    this.#setFollowing(false);
    if (!same || !this.#renderer.rowAt(target.attempt, target.offset)) await this.#window.openAt(this.source, target.offset);
    this.#reveal(target, highlighted);
    this.#update();
  }

  /** @param {LogLocation} target @param {boolean} highlighted */
  #reveal({ attempt, offset }, highlighted) {
    const row = this.#renderer.rowAt(attempt, offset) ?? (offset === END ? this.#renderer.lastRow : undefined);
    this.#renderer.highlight(highlighted ? row : undefined);
    if (!row) return;
    const lead = highlighted ? this.#scroller.clientHeight / 3 : 0;
    this.#scroller.scrollTop += row.getBoundingClientRect().top - this.#scroller.getBoundingClientRect().top - lead;
    this.#lastTop = this.#scroller.scrollTop;
  }

  /** Which byte is at the top of the visible part. */
  #topOffset() {
    const above = byId("log-lines").getBoundingClientRect().top - this.#scroller.getBoundingClientRect().top;
    const position = this.#renderer.positionAt(Math.max(0, -above));
    return position && position.attempt === this.source.attempt ? position.offset : 0;
  }

  #onScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroller;
    const below = scrollHeight - scrollTop - clientHeight;
    const up = scrollTop < this.#lastTop;
    this.#lastTop = scrollTop;
    if (below <= END_TOLERANCE && !this.#following && this.#window.caughtUp) return void this.#resumeFollowing();
    if (below > END_TOLERANCE && up) this.#setFollowing(false);
    if (scrollTop < PREFETCH_DISTANCE && up) void this.#page("older");
    else if (below < PREFETCH_DISTANCE && !this.#following) void this.#page("newer");
    this.#scrubber.show(this.#topOffset(), this.#window.size);
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
      const before = anchor?.getBoundingClientRect().top ?? 0;
      await (older ? this.#window.loadOlder() : this.#window.loadNewer());
      const moved = anchor?.isConnected ? anchor.getBoundingClientRect().top - before : 0;
      if (moved) this.#scroller.scrollTop += moved;
      this.#lastTop = this.#scroller.scrollTop;
      this.#update();
    } finally {
      this.#paging = false;
    }
  }

  #resumeFollowing() {
    this.#setFollowing(true);
    return this.#catchUp();
  }

  async #catchUp() {
    await this.#window.catchUp();
    this.#update();
  }

  #toggleFollowing() {
    if (this.#merged.isShown) return void this.#merged.follow();
    if (this.#following) this.#setFollowing(false);
    else void this.#resumeFollowing();
  }

  /** @param {boolean} following */
  #setFollowing(following) {
    this.#following = following;
    this.#showFollowing(following);
  }

  /** @param {boolean} following */
  #showFollowing(following) {
    this.#follow.setAttribute("aria-pressed", String(following));
    setText(this.#follow, following ? "Following" : "Follow");
  }

  /** Adapt the controls and the scroll position to the changed content. */
  #update() {
    this.#older.hidden = !this.#window.hasOlder;
    byId("log-empty").hidden = this.#renderer.latest !== undefined;
    setText(byId("log-other"), `Show ${otherStream(this.source.stream)}`);
    if (this.#following) {
      this.#scroller.scrollTop = this.#scroller.scrollHeight;
      this.#lastTop = this.#scroller.scrollTop;
    }
    this.#search.highlight();
    this.#times.update(this.source);
    this.#scrubber.show(this.#topOffset(), this.#window.size);
  }
}
