/** A job's life on a time axis, as the server accounts for it: queued, waiting, starting, training, saving, done again. */
import { get, jobPath } from "./api.js";
import { everySecond } from "./clock.js";
import { arrange, h, setText } from "./dom.js";
import { duration } from "./format.js";
import { newest } from "./newest.js";

/**
 * @typedef {"training" | "saving" | "replayed" | "starting" | "waiting" | "queued"} Spending
 * @typedef {{spending: Spending, attempt: number | null, began_at: string, seconds: number}} Piece
 * @typedef {{goodput: number | null, seconds: Record<Spending, number>, pieces: Piece[]}} JobTime
 */

const NAMES = /** @type {const} */ ({
  training: "training",
  saving: "saving",
  replayed: "done again",
  starting: "starting",
  waiting: "waiting",
  queued: "queued",
});
const SPENDINGS = /** @type {Spending[]} */ (Object.keys(NAMES));
const ANEW = 5; // seconds after which the time of a job that is not over is asked for again

export class Timeline {
  #bar;
  #legend;
  /** @type {Map<Spending, HTMLElement>} */
  #amounts = new Map();
  /** @type {import("./api.js").Job | null} */
  #job = null;
  #shown = "";
  #age = 0;
  /** A server that is away for a moment leaves what is shown as it is. */
  #fetch = newest(() => this.#read(), (time) => time && this.#draw(time));

  /**
   * @param {HTMLElement} bar
   * @param {HTMLElement} legend
   */
  constructor(bar, legend) {
    this.#bar = bar;
    this.#legend = legend;
    everySecond(() => {
      this.#age += 1;
      if (this.#job?.ended_at === null && this.#age >= ANEW) void this.#load();
    });
  }

  /** @param {import("./api.js").Job} job asked about anew where its state or attempt is another one */
  show(job) {
    this.#job = job;
    const place = `${job.state} ${job.attempt} ${job.ended_at}`;
    if (place === this.#shown) return;
    this.#shown = place;
    void this.#load();
  }

  #load() {
    this.#age = 0;
    return this.#fetch();
  }

  /** @returns {Promise<JobTime | null>} */
  async #read() {
    return this.#job && get(`${jobPath(this.#job.id)}/time`).catch(() => null);
  }

  /** @param {JobTime} time */
  #draw({ seconds, pieces }) {
    const before = /** @type {HTMLElement[]} */ ([...this.#bar.children]);
    arrange(this.#bar, pieces.map((piece, index) => draw(piece, before[index])));
    for (const spending of SPENDINGS) {
      const amount = this.#amounts.get(spending) ?? h("li", { "data-kind": spending });
      this.#amounts.set(spending, amount);
      setText(amount, `${NAMES[spending]} ${amountText(seconds[spending])}`);
      amount.hidden = seconds[spending] === 0;
    }
    arrange(this.#legend, [...this.#amounts.values()]);
  }
}

/** @param {number} seconds */
const amountText = (seconds) => (seconds < 0.5 ? "under 1 s" : duration(seconds));

/**
 * @param {Piece} piece
 * @param {HTMLElement} [node] drawn anew where there is none yet
 */
function draw({ spending, attempt, seconds }, node = h("span")) {
  const whose = attempt === null ? "" : `attempt ${attempt}: `;
  node.dataset.kind = spending;
  node.title = `${whose}${NAMES[spending]} ${amountText(seconds)}`;
  node.style.flexGrow = String(seconds);
  return node;
}
