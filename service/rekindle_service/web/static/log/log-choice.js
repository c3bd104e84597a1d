/**
 * What of a job's logs is shown, as its selects say: rank, stream and attempt, one log or several, the least serious level.
 *
 * @import { Source } from "./log-window.js"
 */
import { byId, setOptions, setText } from "../shared/dom.js";

export class LogChoice {
  #rank = byId("log-rank", HTMLSelectElement);
  #stream = byId("log-stream", HTMLSelectElement);
  #attempt = byId("log-attempt", HTMLSelectElement);
  #view = byId("log-view", HTMLSelectElement);
  #level = byId("log-level", HTMLSelectElement);
  /** Number of the latest attempt, 0 before the first. */
  latest = 0;

  /** @param {() => void} onChange the user has chosen something else */
  constructor(onChange) {
    for (const select of [this.#rank, this.#stream, this.#attempt, this.#view, this.#level]) {
      select.addEventListener("change", () => {
        this.#disable();
        onChange();
      });
    }
  }

  get rank() {
    return Number(this.#rank.value);
  }

  /** Attempt 0 before the first. @returns {Source} */
  get source() {
    return { rank: this.rank, stream: this.#stream.value, attempt: Number(this.#attempt.value) || this.latest };
  }

  /** The attempt is the latest, whichever that is. */
  get isLatest() {
    return this.#attempt.value === "";
  }

  /** The log whose new output is needed, or null while an earlier attempt is shown. */
  get followed() {
    const { rank, stream, attempt } = this.source;
    return attempt > 0 && attempt === this.latest ? { rank, stream } : null;
  }

  /** Which logs of an attempt are shown; undefined: all. */
  get scope() {
    const { rank, stream } = this.source;
    return { rank: allRanks(this.#view.value) ? undefined : rank, stream: bothStreams(this.#view.value) ? undefined : stream };
  }

  /**
   * What of several logs is shown, or which lines of one; null where one log is shown whole.
   *
   * @param {{q: string, regex: boolean}} filter @returns {import("./merged-log.js").Choice | null}
   */
  several(filter) {
    const { rank, stream } = this.scope;
    if (this.#view.value === "one" && this.#level.value === "debug") return null;
    return { rank: rank === undefined ? undefined : [String(rank)], stream, attempt: this.source.attempt, level: this.#level.value, ...filter };
  }

  /** @param {{rank: number, attempt: number}} source @returns {boolean} whether there is such a log */
  has({ rank, attempt }) {
    return attempt <= this.latest && [...this.#rank.options].some(({ value }) => value === String(rank));
  }

  /** @param {Partial<Source>} source */
  select({ rank, stream, attempt }) {
    if (rank !== undefined) this.#rank.value = String(rank);
    if (stream !== undefined) this.#stream.value = stream;
    if (attempt !== undefined && attempt !== this.source.attempt) this.#attempt.value = attempt === this.latest ? "" : String(attempt);
  }

  /** One log, whole. */
  selectOne() {
    this.#view.value = "one";
    this.#level.value = "debug";
    this.#disable();
  }

  /**
   * @param {number} current ranks of the latest attempt
   * @param {number} max ranks of the largest one, whose logs stay readable
   * @returns {boolean} whether the chosen rank is another one now
   */
  setRanks(current, max) {
    const chosen = this.#rank.value;
    const numbers = Array.from({ length: Math.max(current, max) }, (_, rank) => rank);
    setOptions(this.#rank, numbers.map((rank) => [String(rank), `Rank ${rank}${rank < current ? "" : " (earlier)"}`]));
    return chosen !== "" && chosen !== this.#rank.value;
  }

  /** @param {number} latest number of the latest attempt */
  setLatest(latest) {
    this.latest = latest;
    const numbers = Array.from({ length: latest }, (_, index) => String(latest - index));
    setOptions(this.#attempt, [["", "Latest attempt"], ...numbers.map((number) => [number, `Attempt ${number}`])]);
  }

  #disable() {
    this.#rank.disabled = allRanks(this.#view.value);
    this.#stream.disabled = bothStreams(this.#view.value);
  }
}

/** @param {string} view */
const allRanks = (view) => view === "ranks" || view === "all";

/** @param {string} view */
const bothStreams = (view) => view === "streams" || view === "all";

// --- log follow: The button that follows the output, where there may be any; a log that gets none has an end to go
// to.

export class FollowButton {
  #node = byId("log-follow");
  #isLive = true;
  #isFollowing = true;
  #hasNew = false;

  /** @param {() => void} onClick */
  constructor(onClick) {
    this.#node.addEventListener("click", onClick);
  }

  /** @param {boolean} isLive the log that is shown may grow */
  setLive(isLive) {
    this.#isLive = isLive;
    this.#draw();
  }

  /** @param {boolean} isFollowing @param {boolean} [hasNew] there is output that is not shown */
  show(isFollowing, hasNew = false) {
    this.#isFollowing = isFollowing;
    this.#hasNew = hasNew;
    this.#draw();
  }

  #draw() {
    const isShown = this.#isLive || !this.#isFollowing;
    this.#node.hidden = !isShown;
    if (this.#isLive) this.#node.setAttribute("aria-pressed", String(this.#isFollowing));
    else this.#node.removeAttribute("aria-pressed");
    setText(this.#node, !this.#isLive ? "Go to the end" : this.#isFollowing ? "Following" : this.#hasNew ? "New output below ↓" : "Follow");
  }
}
