/** The head of a job's page: state, progress, figures, and the banners that say what happened or is about to. */
import { badge, setBadge, stateWord } from "./badge.js";
import { everySecond } from "./clock.js";
import { byId, h, setText } from "./dom.js";
import { NONE, count, duration, outOf, percent, place, ranksText, secondsBetween, secondsSince, speed, waitText } from "./format.js";
import { END, linkTo } from "./log-link.js";
import { progressBar, setProgress } from "./progress-bar.js";

/** @typedef {import("./api.js").Job} Job */

const FIGURES = /** @type {[string, (job: Job) => string][]} */ ([
  ["Step", (job) => outOf(job.step, job.steps)],
  ["Epoch", (job) => outOf(job.epoch, job.epochs)],
  ["Time left", (job) => duration(job.eta_seconds)],
  ["Speed", (job) => (job.state === "running" ? speed(job.steps_per_second) : NONE)],
  ["Ranks", ranksText],
  ["Restarts", (job) => count(job.restarts)],
  ["Newest snapshot", (job) => (job.snapshot_step === null ? NONE : `step ${count(job.snapshot_step)}`)],
  ["Goodput", (job) => percent(job.goodput)],
  ["Running for", (job) => duration(job.started_at ? secondsBetween(job.started_at, job.ended_at) : null)],
]);

export class JobHead {
  #badge = badge("queued");
  #bar = progressBar("training progress");
  #values = FIGURES.map(() => h("dd"));
  /** @type {Job | null} */
  #job = null;

  constructor() {
    byId("job-state").append(this.#badge);
    byId("job-progress").append(this.#bar);
    byId("figures").append(...FIGURES.map(([label], index) => h("div", {}, h("dt", {}, label), this.#values[index])));
    everySecond(() => this.#tick());
  }

  /** @param {Job} job */
  show(job) {
    const told = this.#job !== null && stateWord(this.#job) !== stateWord(job);
    this.#job = job;
    setBadge(this.#badge, stateWord(job));
    setText(byId("job-name"), job.name);
    setText(byId("job-id"), `#${job.number}`);
    const experiment = /** @type {HTMLAnchorElement} */ (byId("experiment-link"));
    experiment.hidden = !job.experiment_id;
    if (job.experiment_id) experiment.href = `/experiments/${encodeURIComponent(job.experiment_id)}`;
    document.title = `${job.name} · ${stateWord(job)} · rekindle`;
    setProgress(this.#bar, job, `${percent(job.progress)}, step ${outOf(job.step, job.steps)}`);
    this.#tick();
    if (told) setText(byId("announcement"), `The job is now ${stateWord(job)}.`);
  }

  #tick() {
    const job = this.#job;
    if (!job) return;
    FIGURES.forEach(([, text], index) => setText(this.#values[index], text(job)));
    showBanner(byId("banner"), job);
    setText(byId("notice"), job.notice ?? "");
    byId("notice").hidden = !job.notice;
  }
}

/**
 * @param {HTMLElement} banner
 * @param {Job} job
 */
function showBanner(banner, job) {
  const [title, sentence] = bannerTexts(job);
  banner.hidden = !title && !sentence;
  banner.dataset.state = job.state;
  setText(byId("banner-title"), title);
  setText(byId("banner-sentence"), sentence);
  const cause = sentence && sentence === job.outcome?.message ? job.outcome : null;
  setText(byId("banner-place"), cause ? place(cause) : "");
  const rank = cause?.rank ?? null;
  byId("banner-log").hidden = rank === null;
  if (rank !== null) byId("banner-log").setAttribute("href", linkTo({ rank, stream: "stderr", attempt: job.attempt, offset: END }));
}

/**
 * Title and sentence of the banner; both empty where there is nothing to say.
 *
 * @param {Job} job
 * @returns {[string, string]}
 */
function bannerTexts(job) {
  const reason = job.outcome && job.outcome.class !== "success" ? job.outcome.message : "";
  if (job.state === "recovering") return [`Recovering${nextTry(job.next_try_at)}`, reason];
  if (job.state === "failed") return ["Failed", reason];
  if (job.state === "cancelled") return ["Cancelled", reason];
  if (job.state === "queued" && job.intent === "hold") return ["On hold", "It waits until you resume it."];
  if (job.state === "queued") return [queueTitle(job.queue_position), waitText(job)];
  if (job.intent === "drain") return ["Draining", "It saves a snapshot at the next step boundary, then gives its slots back."];
  if (job.intent === "cancel") return ["Cancelling", "Its ranks are being stopped."];
  return ["", ""];
}

/** @param {number | null} position */
function queueTitle(position) {
  return position === null ? "Waiting" : `Waiting, number ${position} in the queue`;
}

/** @param {string | null} time */
function nextTry(time) {
  const seconds = Math.ceil(-(secondsSince(time) ?? 0));
  return seconds > 0 ? `: next try in ${duration(seconds)}` : " now";
}
