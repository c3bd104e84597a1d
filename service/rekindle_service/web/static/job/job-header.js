/**
 * The header of a job's page: state, progress, figures, and the banner that says what happened or what comes next.
 *
 * @import { JobPublic as Job } from "../shared/api-types.d.ts"
 */
import { experimentUrl } from "../shared/api.js";
import { byId, copyText, h, setText } from "../shared/dom.js";
import { NONE, count, duration, localTime, outOf, percent, ranksText, secondsBetween, secondsSince, speed, times, waitText } from "../shared/format.js";
import { drainLoss } from "../shared/job-actions.js";
import { badge, hasEnded, isHeld, progressBar, setBadge, setProgress, stateWord } from "../shared/job-state.js";
import { revisionText } from "../shared/job-parameters.js";
import { join, quote } from "../shared/shell-words.js";
import { everySecond } from "../shared/timing.js";

/** From printed lines, where the script reports none. @param {number | null} reported @param {number | null} estimate */
const estimated = (reported, estimate) => (reported === null && estimate !== null ? `about ${count(estimate)} (estimate)` : null);

const FIGURES = /** @type {[string, (job: Job) => string][]} */ ([
  ["Step", (job) => estimated(job.step, job.estimated_step) ?? outOf(job.step, job.steps)],
  ["Epoch", (job) => estimated(job.epoch, job.estimated_epoch) ?? outOf(job.epoch, job.epochs)],
  ["Time left", (job) => duration(job.eta_seconds)],
  ["Speed", (job) => (job.state === "running" ? speed(job.steps_per_second) : NONE)],
  ["Ranks", ranksText],
  ["Latest snapshot", (job) => (job.snapshot_step === null ? NONE : `step ${count(job.snapshot_step)}`)],
  ["Preempted", (job) => (job.preemptions ? times(job.preemptions) : "")],
  ["Slurm", slurmText],
  ["Excluded nodes", ({ slurm }) => Object.entries(slurm?.excluded ?? {}).map(([host, reason]) => `${host}: ${reason}`).join("; ")],
  ["Running for", (job) => (job.attempt > 1 ? NONE : sinceStart(job))],
  ["Since the first start", (job) => (job.attempt > 1 ? sinceStart(job) : NONE)],
  ["Ran for", (job) => (job.attempt > 1 ? NONE : startToEnd(job))],
  ["First start to end", (job) => (job.attempt > 1 ? startToEnd(job) : NONE)],
]);

/** With the time between two runs, if a person has resumed the job. @param {Job} job */
const runTime = (job) => duration(job.started_at ? secondsBetween(job.started_at, job.ended_at) : null);
/** @param {Job} job */
const sinceStart = (job) => (job.ended_at || job.state === "queued" ? NONE : runTime(job));
/** @param {Job} job */
const startToEnd = (job) => (job.ended_at ? runTime(job) : NONE);

/** "job 17 on n1, n2"; empty for a job on this machine. @param {Job} job */
function slurmText({ slurm }) {
  if (!slurm) return "";
  const hosts = slurm.hosts?.length ? ` on ${slurm.hosts.join(", ")}` : "";
  return slurm.job_id ? `job ${slurm.job_id}${hosts}${slurm.state === "UNKNOWN" ? " (state unknown)" : ""}` : NONE;
}

const state = badge("queued");
const bar = progressBar("training progress");
const values = FIGURES.map(() => h("dd"));
/** @type {Job | null} */
let shown = null;
state.hidden = true;
byId("job-state").append(state);
byId("job-progress").append(bar);
byId("figures").append(...FIGURES.map(([label], index) => h("div", { hidden: true }, h("dt", {}, label), values[index])));
byId("job-copy").addEventListener("click", () => void copyText(byId("job-command").textContent ?? "", byId("job-copied")));
everySecond(() => shown && showFigures(shown));

/** @param {Job} job */
export function showHeader(job) {
  const changed = shown !== null && stateWord(shown) !== stateWord(job);
  shown = job;
  setBadge(state, stateWord(job));
  state.hidden = false;
  setText(byId("job-name"), job.name);
  setText(byId("job-id"), `#${job.number} of ${job.owner ?? "local"}`);
  const { kind, value } = job.target;
  setText(byId("job-command"), join([...(kind === "script" ? [] : [`--${kind}`]), value, ...job.args]));
  byId("job-command").title = `Interpreter: ${job.python}`;
  setText(byId("job-origin"), [revisionText(job), job.started_at ? `started ${localTime(job.started_at)}` : `submitted ${localTime(job.created_at)}`].filter(Boolean).join(" · "));
  const experiment = byId("experiment-link", HTMLAnchorElement);
  experiment.hidden = !job.experiment_id;
  if (job.experiment_id) experiment.href = experimentUrl(job.experiment_id);
  document.title = `${job.name} · ${stateWord(job)} · rekindle`;
  setProgress(bar, job, `${percent(job.progress)}, step ${outOf(job.step, job.steps)}`);
  showFigures(job);
  if (changed) setText(byId("announcement"), `The job is now ${stateWord(job)}.`);
}

/** Some of them change with time alone. @param {Job} job */
function showFigures(job) {
  FIGURES.forEach(([, text], index) => {
    const value = text(job);
    setText(values[index], value);
    if (values[index].parentElement) values[index].parentElement.hidden = value === "" || value === NONE;
  });
  showBanner(job);
  setText(byId("notice"), job.notice ?? "");
  byId("notice").hidden = !job.notice;
}

/** @param {Job} job */
function showBanner(job) {
  const [title, sentence] = bannerTexts(job);
  byId("banner").hidden = !title && !sentence;
  byId("banner").dataset.state = stateWord(job);
  setText(byId("banner-title"), title);
  setText(byId("banner-sentence"), sentence);
}

/**
 * Title and sentence of the banner, which says what comes next; what happened is the story's. Both are empty where there is nothing to say.
 *
 * @param {Job} job @returns {[string, string]}
 */
function bannerTexts(job) {
  if (hasEnded(job)) return ["", ""];
  if (job.state === "recovering") return [`Recovering${job.waiting_for ? "" : retryText(job.next_try_at)}`, job.waiting_for ?? ""];
  if (job.state === "starting" && job.waiting_for) return ["Starting", job.waiting_for];
  if (job.state === "running" && job.waiting_for) return [job.slurm ? "Stopped by Slurm" : "Trained", job.waiting_for];
  const slurmTitle = job.state === "running" && SLURM_TITLES[job.slurm?.state ?? ""];
  if (slurmTitle) return [slurmTitle, job.slurm?.reason ?? ""];
  if (job.stalled) return stalledTexts(job.stalled);
  if (job.state === "running" && job.slurm?.reason) return ["Nodes need attention", job.slurm.reason];
  if (isHeld(job)) return ["On hold", `Start it: press Release, or rekindle resume ${quote(job.name)}`];
  if (job.state === "queued") return [job.queue_position === null ? "Queued" : `Queued, position ${job.queue_position}`, job.waiting_for ? waitText(job) : ""];
  if (job.displaced) return [DISPLACED[job.displaced.kind] ?? "Changing slots", displacedSentence(job.displaced)];
  if (job.intent === "drain") return ["Draining", drainLoss(job) || "The job saves a snapshot at the next step boundary and then releases its slots."];
  if (job.intent === "cancel") return ["Cancelling", "The job's ranks are being stopped."];
  return ["", ""];
}

/** @param {NonNullable<Job["stalled"]>} stalled @returns {[string, string]} */
function stalledTexts({ sentence, since, hung_at: hungAt }) {
  const left = Math.ceil(-(secondsSince(hungAt) ?? 0));
  return [`Stalled for ${duration(Math.floor(secondsSince(since) ?? 0))}`, `${sentence}; ${left > 0 ? `counts as hung in ${duration(left)}` : "counts as hung now"}.`];
}

/** Titles of the banner of a job that runs, by its state in Slurm. @type {Record<string, string>} */
const SLURM_TITLES = { UNKNOWN: "Slurm does not answer", COMPLETING: "Slurm is ending the job" };

/** Titles of the banner of a job that has to leave slots or gets others, by kind. @type {Record<string, string>} */
const DISPLACED = { preempt: "Being preempted", resize: "Being resized", device: "Leaving a device" };

/** @param {Record<string, any>} displaced */
function displacedSentence({ kind, reason = "" }) {
  return kind === "preempt" ? `${reason} It saves a snapshot, returns to the queue and continues from there.` : reason;
}

/** @param {string | null} time */
function retryText(time) {
  const seconds = Math.ceil(-(secondsSince(time) ?? 0));
  return seconds > 0 ? `: retry in ${duration(seconds)}` : " now";
}
