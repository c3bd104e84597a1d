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

const bar = byId("timeline");
const legend = /** @type {[Category, HTMLElement][]} */ (Object.keys(LABELS).map((category) => [category, h("li", { "data-kind": category })]));
/** @type {Job | null} */
let shown = null;
let age = 0; // seconds since the last request
/** An unreachable server leaves what is shown as it is. */
const refresh = latestWins(readTime, (time) => time && drawTime(time));
byId("timeline-legend").append(...legend.map(([, node]) => node));
everySecond(() => {
  age += 1;
  if (shown?.ended_at === null && age >= REFRESH_SECONDS) void refresh();
});

/** Fetches the time again when the job's state or attempt has changed. @param {Job} job */
export function showTimeline(job) {
  const same = shown?.state === job.state && shown.attempt === job.attempt && shown.ended_at === job.ended_at;
  shown = job;
  if (!same) void refresh();
}

/** @returns {Promise<TimeBreakdown | null>} */
async function readTime() {
  age = 0;
  return shown && call("GET /jobs/{job_id}/time", { job_id: shown.id }).catch(() => null);
}

/** @param {TimeBreakdown} time */
function drawTime({ seconds, intervals }) {
  const before = /** @type {HTMLElement[]} */ ([...bar.children]);
  reorderChildren(bar, intervals.map((interval, index) => draw(interval, before[index])));
  for (const [category, node] of legend) {
    setText(node, `${LABELS[category]} ${amountText(seconds[category])}`);
    node.hidden = seconds[category] === 0;
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
