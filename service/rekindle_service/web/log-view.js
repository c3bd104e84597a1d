/**
 * The log viewer: which rank, stream and attempt; following the end until the reader scrolls up.
 *
 * While the reader looks further up nothing is added below: the new output waits on the server until they come back.
 */
import { byId, h, setText } from "./dom.js";
import { LogFeed } from "./log-feed.js";
import { LogLines } from "./log-lines.js";

/** Distance from the end in CSS pixels that still counts as being there. */
const NEAR_END = 12;

export class LogView {
  #jobId;
  #onSource;
  #rank = /** @type {HTMLSelectElement} */ (byId("log-rank"));
  #stream = /** @type {HTMLSelectElement} */ (byId("log-stream"));
  #attempt = /** @type {HTMLSelectElement} */ (byId("log-attempt"));
  #follow = byId("log-follow");
  #earlier = byId("log-earlier");
  #raw = /** @type {HTMLAnchorElement} */ (byId("log-raw"));
  #scroller = byId("log");
  #lines = new LogLines(byId("log-lines"));
  #feed;
  #latest = 0;
  #following = true;
  /** Whether the newest rows had to make room for older ones. */
  #cut = false;
  #lastTop = 0;

  /**
   * @param {string} jobId
   * @param {(log: {rank: number, stream: string} | null) => void} onSource told whose new output is wanted
   */
  constructor(jobId, onSource) {
    this.#jobId = jobId;
    this.#onSource = onSource;
    this.#feed = new LogFeed(jobId, this.#lines);
    for (const select of [this.#rank, this.#stream, this.#attempt]) select.addEventListener("change", () => this.#open());
    this.#follow.addEventListener("click", () => (this.#following ? this.#setFollowing(false) : this.#resume()));
    this.#earlier.addEventListener("click", () => this.#loadEarlier());
    this.#scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
  }

  /** The rank whose log is shown. */
  get rank() {
    return Number(this.#rank.value);
  }

  /** The log that new output is wanted of, or null while an ended attempt is looked at. */
  get followed() {
    return this.#latest > 0 && this.#attempt.value === "" ? { rank: Number(this.#rank.value), stream: this.#stream.value } : null;
  }

  /** @param {number[]} ranks */
  setRanks(ranks) {
    fill(this.#rank, ranks.map((rank) => [String(rank), `Rank ${rank}`]));
  }

  /** @param {number} latest number of the newest attempt, 0 before the first */
  async setLatest(latest) {
    if (latest === this.#latest) return;
    const first = this.#latest === 0;
    this.#latest = latest;
    const numbers = Array.from({ length: latest }, (_, index) => String(latest - index));
    fill(this.#attempt, [["", "Latest attempt"], ...numbers.map((number) => [number, `Attempt ${number}`])]);
    if (first) return this.#open();
    if (this.#attempt.value === "") await this.#feed.goOn(latest);
    this.#link();
    this.#settle();
  }

  /** @param {number} rank */
  select(rank) {
    if (this.#rank.value === String(rank)) return;
    this.#rank.value = String(rank);
    void this.#open();
  }

  /** @param {{attempt: number, rank: number, stream: string, offset: number, next_offset: number, text: string}} event */
  async hear(event) {
    if (this.followed === null || event.rank !== this.followed.rank || event.stream !== this.followed.stream) return;
    if (event.attempt > this.#latest) await this.setLatest(event.attempt);
    if (!this.#following) return setText(this.#follow, "New output below ↓");
    await this.#feed.hear(event);
    this.#settle();
  }

  /** Fetch what was missed while nobody told us. */
  async refresh() {
    if (this.followed === null || !this.#following) return;
    await this.#feed.catchUp();
    this.#settle();
  }

  async #open() {
    const source = this.#source;
    this.#onSource(this.followed);
    this.#link();
    if (source.attempt === 0) return;
    this.#cut = false;
    this.#setFollowing(true);
    await this.#feed.open(source);
    this.#settle();
  }

  get #source() {
    const attempt = Number(this.#attempt.value) || this.#latest;
    return { rank: this.rank, stream: this.#stream.value, attempt };
  }

  /** Offer the part of the log that a browser can show as a page of its own. */
  #link() {
    const { rank, stream, attempt } = this.#source;
    this.#raw.hidden = attempt === 0;
    this.#raw.href = `/api/v1/jobs/${encodeURIComponent(this.#jobId)}/ranks/${rank}/log?stream=${stream}&attempt=${attempt}&tail=10000&limit=1048576`;
  }

  async #loadEarlier() {
    this.#setFollowing(false);
    const fromEnd = this.#scroller.scrollHeight - this.#scroller.scrollTop;
    this.#cut = (await this.#feed.earlier()) || this.#cut;
    if (!this.#cut) this.#scroller.scrollTop = this.#scroller.scrollHeight - fromEnd;
    this.#settle();
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroller;
    const atEnd = scrollHeight - scrollTop - clientHeight <= NEAR_END;
    if (atEnd && !this.#following) void this.#resume();
    else if (!atEnd && scrollTop < this.#lastTop) this.#setFollowing(false);
    this.#lastTop = scrollTop;
  }

  async #resume() {
    if (this.#cut) return this.#open();
    this.#setFollowing(true);
    await this.#feed.catchUp();
    this.#settle();
  }

  /** @param {boolean} following */
  #setFollowing(following) {
    this.#following = following;
    this.#follow.setAttribute("aria-pressed", String(following));
    setText(this.#follow, following ? "Following" : "Follow");
  }

  /** Put the view right after its content has changed. */
  #settle() {
    this.#earlier.hidden = !this.#feed.hasEarlier;
    byId("log-empty").hidden = !this.#lines.empty;
    if (!this.#following) return;
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#lastTop = this.#scroller.scrollTop;
  }
}

/**
 * Give `select` these options, keeping the choice where it still exists.
 *
 * @param {HTMLSelectElement} select
 * @param {string[][]} options pairs of value and label
 */
function fill(select, options) {
  const present = [...select.options].map((option) => option.value);
  if (present.join() === options.map(([value]) => value).join()) return;
  const chosen = select.value;
  select.replaceChildren(...options.map(([value, label]) => h("option", { value }, label)));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}
