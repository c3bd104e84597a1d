/**
 * A job's time from submission to its end, by what it went into.
 *
 * @import { JobPublic as Job, TimeBreakdown } from "../shared/api-types.d.ts"
 * @typedef {keyof TimeBreakdown["seconds"]} Category
 */
import { call } from "../shared/api.js";
import { byId, h, reorderChildren, setText } from "../shared/dom.js";
import { duration } from "../shared/format.js";
import { latestWins } from "../shared/latest-wins.js";
import { everySecond } from "../shared/ticker.js";

/** The labels of the categories, in the order of the legend. @type {Record<Category, string>} */
const LABELS = { training: "training", saving: "saving", replayed: "replayed", starting: "starting", waiting: "backing off", queued: "queued" };
/** For a job that has not ended. */
const REFRESH_SECONDS = 5;

export class Timeline {
  #bar = byId("timeline");
  #legend = /** @type {[Category, HTMLElement][]} */ (Object.keys(LABELS).map((category) => [category, h("li", { "data-kind": category })]));
  /** @type {Job | null} */
  #job = null;
  #shown = "";
  #age = 0;
  /** An unreachable server leaves what is shown as it is. */
  #fetch = latestWins(() => this.#read(), (time) => time && this.#draw(time));

  constructor() {
    byId("timeline-legend").append(...this.#legend.map(([, node]) => node));
    everySecond(() => {
      this.#age += 1;
      if (this.#job?.ended_at === null && this.#age >= REFRESH_SECONDS) void this.#load();
    });
  }

  /** Fetches the time again when the job's state or attempt has changed. @param {Job} job */
  show(job) {
    this.#job = job;
    const key = `${job.state} ${job.attempt} ${job.ended_at}`;
    if (key === this.#shown) return;
    this.#shown = key;
    void this.#load();
  }

  #load() {
    this.#age = 0;
    return this.#fetch();
  }

  /** @returns {Promise<TimeBreakdown | null>} */
  async #read() {
    return this.#job && call("GET /jobs/{job_id}/time", { job_id: this.#job.id }).catch(() => null);
  }

  /** @param {TimeBreakdown} time */
  #draw({ seconds, intervals }) {
    const before = /** @type {HTMLElement[]} */ ([...this.#bar.children]);
    reorderChildren(this.#bar, intervals.map((interval, index) => draw(interval, before[index])));
    for (const [category, node] of this.#legend) {
      setText(node, `${LABELS[category]} ${amountText(seconds[category])}`);
      node.hidden = seconds[category] === 0;
    }
  }
}

/** @param {number} seconds */
const amountText = (seconds) => (seconds < 0.5 ? "under 1 s" : duration(seconds));

/** @param {TimeBreakdown["intervals"][number]} interval @param {HTMLElement} [node] created where there is none yet */
function draw({ category, attempt, seconds }, node = h("span")) {
  node.dataset.kind = category;
  node.title = `${attempt === null ? "" : `attempt ${attempt}: `}${LABELS[category]} ${amountText(seconds)}`;
  node.style.flexGrow = String(seconds);
  return node;
}
