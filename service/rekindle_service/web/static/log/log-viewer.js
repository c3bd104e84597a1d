/**
 * The log viewer: which rank, stream and attempt; following the end until the user scrolls up; paging through a log of
 * any length by scrolling, by its slider, by search and by permalinks.
 *
 * While the user is further up nothing is added at the end: new output is fetched when they come back.
 *
 * @import { LogLocation } from "./log-permalink.js"
 */
import { urlOf } from "../shared/api.js";
import { byId, patchChildren, setText } from "../shared/dom.js";
import { END, linkTo, otherStream, parsePermalink } from "./log-permalink.js";
import { LogRenderer } from "./log-renderer.js";
import { LogScrubber } from "./log-scrubber.js";
import { LogSearch } from "./log-search.js";
import { LogWindow } from "./log-window.js";

/** Distance from the end, in CSS pixels, that still counts as the end. */
const END_TOLERANCE = 12;
/** Distance from the loaded part's edge, in CSS pixels, at which more is fetched. */
const PREFETCH_DISTANCE = 600;

export class LogViewer {
  #jobId;
  #onSource;
  #rank = byId("log-rank", HTMLSelectElement);
  #stream = byId("log-stream", HTMLSelectElement);
  #attempt = byId("log-attempt", HTMLSelectElement);
  #follow = byId("log-follow");
  #older = byId("log-older");
  #scroller = byId("log");
  #renderer = new LogRenderer(byId("log-lines"), (attempt, offset) => linkTo({ ...this.source, attempt, offset }));
  #window;
  #scrubber = new LogScrubber((offset) => void this.#goTo({ ...this.source, offset }, false));
  #search;
  #latest = 0;
  #following = true;
  #paging = false;
  #lastTop = 0;
  /** @type {LogLocation | null} target of the permalink, as long as no such rank or attempt is known */
  #pending = parsePermalink(location.hash);

  /**
   * @param {string} jobId
   * @param {(log: {rank: number, stream: string} | null) => void} onSource the log whose new output is needed
   */
  constructor(jobId, onSource) {
    this.#jobId = jobId;
    this.#onSource = onSource;
    this.#window = new LogWindow(jobId, this.#renderer);
    this.#search = new LogSearch(jobId, { source: () => this.source, offset: () => this.#topOffset(), goTo: (target) => this.#goTo(target, true) });
    for (const select of [this.#rank, this.#stream, this.#attempt]) select.addEventListener("change", () => this.#choose());
    this.#follow.addEventListener("click", () => (this.#following ? this.#setFollowing(false) : this.#resumeFollowing()));
    this.#older.addEventListener("click", () => this.#page("older"));
    byId("log-other").addEventListener("click", () => this.#switchStream());
    this.#scroller.addEventListener("scroll", () => this.#onScroll(), { passive: true });
    addEventListener("hashchange", () => void this.#followLink());
    addEventListener("click", ({ target }) => this.#followSameLink(target));
  }

  /** The rank whose log is shown. */
  get rank() {
    return Number(this.#rank.value);
  }

  /** The log that is shown; attempt 0 before the first. */
  get source() {
    const attempt = Number(this.#attempt.value) || this.#latest;
    return { rank: this.rank, stream: this.#stream.value, attempt };
  }

  /** The log whose new output is needed, or null while an earlier attempt is shown. */
  get followed() {
    const { rank, stream, attempt } = this.source;
    return attempt > 0 && attempt === this.#latest ? { rank, stream } : null;
  }

  /**
   * @param {number} current ranks of the latest attempt
   * @param {number} max ranks of the largest one, whose logs stay readable
   */
  setRanks(current, max) {
    const chosen = this.#rank.value;
    const numbers = Array.from({ length: Math.max(current, max) }, (_, rank) => rank);
    fill(this.#rank, numbers.map((rank) => [String(rank), `Rank ${rank}${rank < current ? "" : " (earlier)"}`]));
    if (this.#pending && this.#exists(this.#pending)) void this.#followLink();
    else if (chosen !== "" && chosen !== this.#rank.value) void this.#open();
  }

  /** @param {number} latest number of the latest attempt, 0 before the first */
  async setLatest(latest) {
    if (latest === this.#latest) return;
    const first = this.#latest === 0;
    this.#latest = latest;
    const numbers = Array.from({ length: latest }, (_, index) => String(latest - index));
    fill(this.#attempt, [["", "Latest attempt"], ...numbers.map((number) => [number, `Attempt ${number}`])]);
    if (first) return this.#pending ? this.#followLink() : this.#open();
    if (this.#attempt.value === "") await this.#window.switchAttempt(latest, this.#following);
    this.#offerDownloads();
    this.#update();
  }

  /** @param {number} rank */
  select(rank) {
    if (this.#rank.value === String(rank)) return;
    this.#rank.value = String(rank);
    void this.#choose();
  }

  /** Show a position of a log, if there is such a log, without scrolling the page. @param {LogLocation} target */
  show(target) {
    if (this.#exists(target)) void this.#goTo(target, true);
  }

  /**
   * @param {{attempt: number, rank: number, stream: string, offset: number, next_offset: number, text: string}} event
   */
  async onChunk(event) {
    if (event.attempt > this.#latest) await this.setLatest(event.attempt);
    if (this.followed === null || event.rank !== this.followed.rank || event.stream !== this.followed.stream) return;
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
    if (this.followed !== null && this.#following) await this.#catchUp();
  }

  /** The user chose another log: the permalink does not matter any more. */
  #choose() {
    this.#pending = null;
    return this.#open();
  }

  /** Progress bars and loggers write to stderr, which is easily overlooked when stdout is empty. */
  #switchStream() {
    this.#stream.value = otherStream(this.#stream.value);
    this.#stream.focus();
    return this.#choose();
  }

  async #open() {
    this.#sourceChanged();
    if (this.source.attempt === 0) return;
    this.#setFollowing(true);
    await this.#window.open(this.source);
    this.#update();
  }

  #sourceChanged() {
    this.#onSource(this.followed);
    this.#search.onSourceChange();
    this.#offerDownloads();
  }

  /** Offer the whole log, and all of them, as files. */
  #offerDownloads() {
    byId("log-file", HTMLAnchorElement).href = urlOf("GET /jobs/{job_id}/ranks/{rank}/log/file", { job_id: this.#jobId, ...this.source });
    byId("log-zip", HTMLAnchorElement).href = urlOf("GET /jobs/{job_id}/logs.zip", { job_id: this.#jobId });
    byId("log-downloads").hidden = this.#latest === 0;
  }

  /** Show what the page's URL points to, if there is such a log. */
  async #followLink() {
    const target = parsePermalink(location.hash);
    this.#pending = target && target.attempt <= this.#latest ? target : null;
    if (!target || !this.#exists(target)) return this.#window.size || !this.#following ? undefined : this.#open();
    byId("log-title").scrollIntoView({ block: "start" });
    await this.#goTo(target, true);
  }

  /** A link to the page's present URL changes no hash. @param {EventTarget | null} target */
  #followSameLink(target) {
    const link = target instanceof Element ? target.closest("a") : null;
    if (link?.hash && link.href === location.href) void this.#followLink();
  }

  /** @param {LogLocation} target */
  #exists({ rank, attempt }) {
    return attempt <= this.#latest && [...this.#rank.options].some(({ value }) => value === String(rank));
  }

  /** @param {LogLocation} target @param {boolean} highlighted whether to highlight the line there */
  async #goTo(target, highlighted) {
    const before = this.source;
    this.#pending = null;
    this.#rank.value = String(target.rank);
    this.#stream.value = target.stream;
    if (target.attempt !== before.attempt) this.#attempt.value = target.attempt === this.#latest ? "" : String(target.attempt);
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

  /** @param {boolean} following */
  #setFollowing(following) {
    this.#following = following;
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
    this.#scrubber.show(this.#topOffset(), this.#window.size);
  }
}

/**
 * Give `select` these options, keeping the choice where it still exists.
 *
 * @param {HTMLSelectElement} select @param {string[][]} options value and label
 */
function fill(select, options) {
  const chosen = select.value;
  patchChildren(select, options.map(([value, label]) => new Option(label, value)));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}
