/**
 * The log viewer: which rank, stream and attempt; following the end until the reader scrolls up; paging through a log of
 * any length by scrolling, by its position slider, by search and by links.
 *
 * While the reader looks further up nothing is added below: the new output waits on the server until they come back.
 */
import { byId, h, setText } from "./dom.js";
import { downloads } from "./job-api.js";
import { LogFeed } from "./log-feed.js";
import { LogLines } from "./log-lines.js";
import { END, linkTo, otherStream, placeOf } from "./log-link.js";
import { LogPosition } from "./log-position.js";
import { LogSearch } from "./log-search.js";

/** Distance from the end in CSS pixels that still counts as being there. */
const NEAR_END = 12;
/** Distance from what is loaded at which more of it is fetched. */
const AHEAD = 600;

export class LogView {
  #jobId;
  #onSource;
  #rank = /** @type {HTMLSelectElement} */ (byId("log-rank"));
  #stream = /** @type {HTMLSelectElement} */ (byId("log-stream"));
  #attempt = /** @type {HTMLSelectElement} */ (byId("log-attempt"));
  #follow = byId("log-follow");
  #earlier = byId("log-earlier");
  #scroller = byId("log");
  #lines = new LogLines(byId("log-lines"), (attempt, offset) => linkTo({ ...this.source, attempt, offset }));
  #feed;
  #position = new LogPosition((offset) => void this.#goTo({ ...this.source, offset }, false));
  #search;
  #latest = 0;
  #following = true;
  #paging = false;
  #lastTop = 0;
  /** @type {import("./log-link.js").Place | null} where a link leads, as long as no such rank or attempt is known */
  #wanted = placeOf(location.hash);

  /**
   * @param {string} jobId
   * @param {(log: {rank: number, stream: string} | null) => void} onSource told whose new output is wanted
   */
  constructor(jobId, onSource) {
    this.#jobId = jobId;
    this.#onSource = onSource;
    this.#feed = new LogFeed(jobId, this.#lines);
    this.#search = new LogSearch(jobId, { source: () => this.source, place: () => this.#place(), goTo: (place) => this.#goTo(place, true) });
    for (const select of [this.#rank, this.#stream, this.#attempt]) select.addEventListener("change", () => this.#choose());
    this.#follow.addEventListener("click", () => (this.#following ? this.#setFollowing(false) : this.#resume()));
    this.#earlier.addEventListener("click", () => this.#page("earlier"));
    byId("log-other").addEventListener("click", () => this.#switchStream());
    this.#scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    addEventListener("hashchange", () => void this.#followLink());
    addEventListener("click", ({ target }) => this.#followAgain(target));
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

  /** The log that new output is wanted of, or null while an ended attempt is looked at. */
  get followed() {
    const { rank, stream, attempt } = this.source;
    return attempt > 0 && attempt === this.#latest ? { rank, stream } : null;
  }

  /**
   * @param {number} now ranks of the newest attempt
   * @param {number} ever ranks of the widest one: what they wrote can be read although they are no more
   */
  setRanks(now, ever) {
    const chosen = this.#rank.value;
    const numbers = Array.from({ length: Math.max(now, ever) }, (_, rank) => rank);
    fill(this.#rank, numbers.map((rank) => [String(rank), `Rank ${rank}${rank < now ? "" : " (earlier)"}`]));
    if (this.#wanted && this.#offers(this.#wanted)) void this.#followLink();
    else if (chosen !== "" && chosen !== this.#rank.value) void this.#open();
  }

  /** @param {number} latest number of the newest attempt, 0 before the first */
  async setLatest(latest) {
    if (latest === this.#latest) return;
    const first = this.#latest === 0;
    this.#latest = latest;
    const numbers = Array.from({ length: latest }, (_, index) => String(latest - index));
    fill(this.#attempt, [["", "Latest attempt"], ...numbers.map((number) => [number, `Attempt ${number}`])]);
    if (first) return this.#wanted ? this.#followLink() : this.#open();
    if (this.#attempt.value === "") await this.#feed.goOn(latest, this.#following);
    this.#offer();
    this.#settle();
  }

  /**
   * @param {number} rank
   * @param {boolean} [reveal] bring the viewer into view
   */
  select(rank, reveal = false) {
    if (reveal) byId("log-title").scrollIntoView({ block: "nearest" });
    if (this.#rank.value === String(rank)) return;
    this.#rank.value = String(rank);
    void this.#choose();
  }

  /** @param {{attempt: number, rank: number, stream: string, offset: number, next_offset: number, text: string}} event */
  async hear(event) {
    if (event.attempt > this.#latest) await this.setLatest(event.attempt);
    if (this.followed === null || event.rank !== this.followed.rank || event.stream !== this.followed.stream) return;
    if (!this.#following) {
      this.#feed.note(event);
      this.#position.show(this.#place(), this.#feed.size);
      return setText(this.#follow, "New output below ↓");
    }
    await this.#feed.hear(event);
    this.#settle();
  }

  /** Fetch what was missed while nobody told us. */
  async refresh() {
    if (this.followed === null || !this.#following) return;
    await this.#feed.catchUp();
    this.#settle();
  }

  /** The reader wants another log: where a link would have led does not matter any more. */
  #choose() {
    this.#wanted = null;
    return this.#open();
  }

  /** Progress bars and loggers write to stderr, which who looks at an empty stdout may not think of. */
  #switchStream() {
    this.#stream.value = otherStream(this.#stream.value);
    this.#stream.focus();
    return this.#choose();
  }

  async #open() {
    this.#change();
    if (this.source.attempt === 0) return;
    this.#setFollowing(true);
    await this.#feed.open(this.source);
    this.#settle();
  }

  /** Another log is looked at. */
  #change() {
    this.#onSource(this.followed);
    this.#search.moved();
    this.#offer();
  }

  /** Offer the whole log, and all of them, as files. */
  #offer() {
    const links = downloads(this.#jobId, this.source);
    /** @type {HTMLAnchorElement} */ (byId("log-file")).href = links.log;
    /** @type {HTMLAnchorElement} */ (byId("log-zip")).href = links.zip;
    byId("log-downloads").hidden = this.#latest === 0;
  }

  /** Show what the page's address names, as far as there is such a log. */
  async #followLink() {
    const place = placeOf(location.hash);
    this.#wanted = place && place.attempt <= this.#latest ? place : null;
    if (!place || !this.#offers(place)) return this.#feed.size || this.#following === false ? undefined : this.#open();
    byId("log-title").scrollIntoView({ block: "start" });
    await this.#goTo(place, true);
  }

  /** A link to where the address leads already changes no hash. @param {EventTarget | null} target */
  #followAgain(target) {
    const link = target instanceof Element ? target.closest("a") : null;
    if (link?.hash && link.href === location.href) void this.#followLink();
  }

  /** @param {import("./log-link.js").Place} place */
  #offers({ rank, attempt }) {
    return attempt <= this.#latest && [...this.#rank.options].some(({ value }) => value === String(rank));
  }

  /**
   * @param {import("./log-link.js").Place} place
   * @param {boolean} marked whether the line there is to stand out
   */
  async #goTo(place, marked) {
    const before = this.source;
    this.#wanted = null;
    this.#rank.value = String(place.rank);
    this.#stream.value = place.stream;
    if (place.attempt !== before.attempt) this.#attempt.value = place.attempt === this.#latest ? "" : String(place.attempt);
    const same = before.rank === place.rank && before.stream === place.stream && before.attempt === place.attempt;
    if (!same) this.#change();
    this.#setFollowing(false);
    if (!same || !this.#lines.rowAt(place.attempt, place.offset)) await this.#feed.openAt(this.source, place.offset);
    this.#reveal(place, marked);
    this.#settle();
  }

  /**
   * @param {import("./log-link.js").Place} place
   * @param {boolean} marked
   */
  #reveal({ attempt, offset }, marked) {
    const row = this.#lines.rowAt(attempt, offset) ?? (offset === END ? this.#lines.lastRow : undefined);
    this.#lines.emphasise(marked ? row : undefined);
    if (!row) return;
    const lead = marked ? this.#scroller.clientHeight / 3 : 0;
    this.#scroller.scrollTop += row.getBoundingClientRect().top - this.#scroller.getBoundingClientRect().top - lead;
    this.#lastTop = this.#scroller.scrollTop;
  }

  /** Which byte is at the top of what is seen. */
  #place() {
    const above = byId("log-lines").getBoundingClientRect().top - this.#scroller.getBoundingClientRect().top;
    const place = this.#lines.placeAt(Math.max(0, -above));
    return place && place.attempt === this.source.attempt ? place.offset : 0;
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroller;
    const below = scrollHeight - scrollTop - clientHeight;
    const up = scrollTop < this.#lastTop;
    this.#lastTop = scrollTop;
    if (below <= NEAR_END && !this.#following && this.#feed.caughtUp) return void this.#resume();
    if (below > NEAR_END && up) this.#setFollowing(false);
    if (scrollTop < AHEAD && up) void this.#page("earlier");
    else if (below < AHEAD && !this.#following) void this.#page("later");
    this.#position.show(this.#place(), this.#feed.size);
  }

  /**
   * One more piece at either end of the window, without what is seen moving.
   *
   * @param {"earlier" | "later"} which
   */
  async #page(which) {
    if (this.#paging || !(which === "earlier" ? this.#feed.hasEarlier : this.#feed.hasLater)) return;
    this.#paging = true;
    this.#setFollowing(false);
    try {
      const anchor = (which === "earlier" ? this.#lines.oldest : this.#lines.newest)?.node;
      const before = anchor?.getBoundingClientRect().top ?? 0;
      await this.#feed[which]();
      const moved = anchor?.isConnected ? anchor.getBoundingClientRect().top - before : 0;
      if (moved) this.#scroller.scrollTop += moved;
      this.#lastTop = this.#scroller.scrollTop;
      this.#settle();
    } finally {
      this.#paging = false;
    }
  }

  async #resume() {
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
    setText(byId("log-other"), `Show ${otherStream(this.source.stream)}`);
    if (this.#following) {
      this.#scroller.scrollTop = this.#scroller.scrollHeight;
      this.#lastTop = this.#scroller.scrollTop;
    }
    this.#search.highlight();
    this.#position.show(this.#place(), this.#feed.size);
  }
}

/**
 * Give `select` these options, keeping the choice where it still exists.
 *
 * @param {HTMLSelectElement} select
 * @param {string[][]} options pairs of value and label
 */
function fill(select, options) {
  const present = [...select.options].map(({ value, text }) => [value, text]);
  if (present.join() === options.join()) return;
  const chosen = select.value;
  select.replaceChildren(...options.map(([value, label]) => h("option", { value }, label)));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}
