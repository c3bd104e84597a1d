/**
 * One row of the table of jobs: a job, an experiment with all its jobs, or a notice.
 *
 * @import { JobPublic as Job, OverviewItem, SameError } from "../shared/api-types.d.ts"
 */
import { svg } from "../results/svg.js";
import { call, experimentUrl, filterUrl, jobUrl, warn } from "../shared/api.js";
import { h, patchChildren, setText } from "../shared/dom.js";
import { SEEN } from "../shared/job-actions.js";
import { NONE, brief, count, counted, localTime, outOf, ranksText, secondsSince, significant, times, waitText } from "../shared/format.js";
import { badge, progressBar, setBadge, setProgress, stateWord } from "../shared/job-state.js";

/** What identifies a row as long as it is shown. @param {OverviewItem} item */
export const keyOf = ({ kind, job, experiment, device }) => `${kind} ${job?.id ?? experiment?.id ?? device ?? ""}`;

/** @param {OverviewItem} item */
export function rowOf({ kind }) {
  if (kind === "job") return new JobRow();
  return kind === "experiment" ? new ExperimentRow() : new NoticeRow();
}

export class JobRow {
  #box = h("input", { type: "checkbox" });
  #badge = badge("queued");
  #position = h("span", { class: "under" });
  #name = h("a", { class: "job-name" });
  #args = h("span", { class: "under args" });
  #tags = h("span", { class: "tags" });
  #owner = h("td", { class: "owner col-owner", "data-label": "Owner" });
  #bar = progressBar("progress");
  #steps = h("span", { class: "under" });
  #curve = svg("polyline", { class: "curve", "vector-effect": "non-scaling-stroke" });
  #spark = svg("svg", { class: "spark", viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" }, this.#curve);
  #metric = h("span", { class: "under" });
  #eta = h("td", { class: "number eta col-eta", "data-label": "Time left" });
  #ranks = h("td", { class: "number col-ranks", "data-label": "Ranks" });
  #restarts = h("td", { class: "number col-restarts", "data-label": "Restarts" });
  #reason = h("bdi");
  #note = h("bdi", { class: "under own-note" });
  #alike = h("details", { class: "alike", hidden: true });
  #age = h("time");
  /** @type {Job | null} */
  job = null;

  node = h(
    "tr",
    { class: "row" },
    h("td", { class: "choice" }, this.#box),
    h("td", { class: "state" }, this.#badge, this.#position),
    h("th", { scope: "row", class: "job" }, this.#name, this.#args, this.#tags),
    this.#owner,
    h("td", { class: "progress col-progress" }, this.#bar, h("div", { class: "figures" }, this.#steps, this.#metric)),
    this.#eta,
    this.#ranks,
    this.#restarts,
    h("td", { class: "note col-note" }, this.#reason, this.#alike, this.#note),
    h("td", { class: "number age col-age", "data-label": "Age" }, this.#age),
  );

  /** @param {boolean} on */
  set selected(on) {
    this.#box.checked = on;
    this.node.classList.toggle("selected", on);
  }

  /** @param {OverviewItem} item */
  update({ job }) {
    if (job) this.show(job);
  }

  /** @param {Job} job an older version than the one shown changes nothing */
  show(job) {
    if (this.job && job.version < this.job.version) return;
    this.job = job;
    this.#box.value = job.id;
    this.#box.setAttribute("aria-label", `Select job ${job.number}, ${job.name}`);
    setBadge(this.#badge, stateWord(job));
    setText(this.#position, positionText(job));
    setText(this.#name, job.name);
    this.#name.href = jobUrl(job.id);
    this.#name.title = job.name;
    setText(this.#args, [`#${job.number}`, job.target.value, ...job.args].join(" "));
    this.#args.title = this.#args.textContent ?? "";
    const archived = job.archived_at ? [h("span", { class: "tag" }, "archived")] : [];
    patchChildren(this.#tags, [...archived, ...job.tags.map((tag) => h("a", { class: "tag", href: filterUrl(`tag:${tag}`), "data-focus": tag }, tag))]);
    setText(this.#owner, job.owner ?? "local");
    this.#owner.title = job.owner ?? "";
    this.#showProgress(job);
    setText(this.#reason, reasonText(job));
    setText(this.#note, job.note);
    this.#age.dateTime = job.created_at ?? "";
    this.#age.title = `submitted ${localTime(job.created_at)}`;
    this.tick();
  }

  /** @param {Job} job */
  #showProgress(job) {
    const steps = stepsText(job);
    setText(this.#steps, steps);
    setProgress(this.#bar, job, steps);
    this.#bar.hidden = job.progress === null && job.state !== "succeeded";
    setFigure(this.#eta, brief(job.eta_seconds));
    setFigure(this.#ranks, ranksText(job));
    setFigure(this.#restarts, job.restarts ? count(job.restarts) : NONE);
  }

  /** Other jobs that failed by the same exception at the same line, which have no row. @param {SameError[]} others */
  showAlike(others) {
    const { exception, file, line } = this.job?.outcome ?? {};
    const title = `${counted(others.length + 1, "job")}: ${exception} at ${file}:${line}`;
    this.#alike.hidden = others.length === 0;
    if (this.#alike.hidden || this.#alike.dataset.jobs === others.map(({ id }) => id).join()) return;
    this.#alike.dataset.jobs = others.map(({ id }) => id).join();
    const seen = h("button", { type: "button", class: "quiet", hidden: !this.job || !SEEN.possible(this.job) }, "Mark all as seen");
    seen.onclick = async () => {
      const jobs = [...others, ...(this.job ? [this.job] : [])];
      await Promise.all(jobs.map(({ id }) => call("PATCH /jobs/{job_id}", { job_id: id }, { seen: true }))).catch(warn("a failure"));
      this.node.dispatchEvent(new Event("seen", { bubbles: true }));
    };
    this.#alike.replaceChildren(h("summary", {}, title), ...others.map(({ id, number, name }) => h("a", { href: jobUrl(id) }, h("bdi", {}, `#${number} ${name}`))), seen);
  }

  /** @param {string} name of a metric @param {number[]} values the latest last */
  showCurve(name, values) {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const height = (/** @type {number} */ value) => (high > low ? 19 - (18 * (value - low)) / (high - low) : 10);
    const last = Math.max(1, values.length - 1);
    this.#curve.setAttribute("points", values.map((value, index) => `${((100 * index) / last).toFixed(1)},${height(value).toFixed(1)}`).join(" "));
    setText(this.#metric, values.length ? `${name} ${significant(values[values.length - 1])}` : "");
    if (values.length > 1 && !this.#spark.isConnected) this.#metric.before(this.#spark);
  }

  tick() {
    if (this.job) setText(this.#age, brief(secondsSince(this.job.created_at)));
  }
}

/** Cells of the columns that only jobs have. */
const noFigures = () => ["eta", "ranks", "restarts"].map((column) => h("td", { class: `number none col-${column}` }));

export class ExperimentRow {
  #badge = badge("done");
  #name = h("a", { class: "job-name" });
  #under = h("span", { class: "under" });
  #owner = h("td", { class: "owner col-owner", "data-label": "Owner" });
  #counts = h("td", { class: "progress col-progress" });
  #title = h("bdi");
  #result = h("bdi", { class: "under result" });
  #age = h("time");
  id = "";
  /** The experiment and when its last job ended: what its results belong to. */
  key = "";
  node = h(
    "tr",
    { class: "row" },
    h("td", { class: "choice" }),
    h("td", { class: "state" }, this.#badge),
    h("th", { scope: "row", class: "job" }, this.#name, this.#under),
    this.#owner,
    this.#counts,
    ...noFigures(),
    h("td", { class: "note col-note" }, this.#title, this.#result),
    h("td", { class: "number age col-age", "data-label": "Age" }, this.#age),
  );

  /** @param {OverviewItem} item */
  update({ experiment, at }) {
    if (!experiment) return;
    this.id = experiment.id;
    this.key = `${experiment.id} ${at}`;
    setBadge(this.#badge, experiment.over ? "done" : "running");
    setText(this.#name, experiment.name);
    this.#name.href = experimentUrl(experiment.id);
    setText(this.#under, `experiment of ${counted(experiment.jobs, "job")}`);
    setText(this.#owner, experiment.owner ?? "local");
    setText(this.#counts, Object.entries(experiment.states).map(([state, number]) => `${count(number)} ${state}`).join(", "));
    setText(this.#title, experiment.title);
    this.#age.dateTime = at ?? "";
    this.#age.title = `last job ended ${localTime(at)}`;
    setText(this.#age, brief(secondsSince(at)));
  }

  /** @param {string} text */
  showResult(text) {
    setText(this.#result, text);
    this.#result.title = text;
  }
}

class NoticeRow {
  #badge = badge("failed");
  #reason = h("bdi");
  #link = h("a", { class: "job-name" });
  node = h(
    "tr",
    { class: "row" },
    h("td", { class: "choice" }),
    h("td", { class: "state" }, this.#badge),
    h("th", { scope: "row", class: "job" }, this.#link),
    h("td", { class: "col-owner" }),
    h("td", { class: "col-progress" }),
    ...noFigures(),
    h("td", { class: "note col-note" }, this.#reason),
    h("td", { class: "number col-age" }),
  );

  /** @param {OverviewItem} item */
  update({ kind, device, reason }) {
    setText(this.#badge, kind);
    setText(this.#link, device ?? "Disk space");
    this.#link.href = kind === "disk" ? "/disk" : "/machine";
    setText(this.#reason, reason);
  }
}

/** An empty figure takes no room on a phone. @param {HTMLElement} cell @param {string} text */
function setFigure(cell, text) {
  setText(cell, text);
  cell.classList.toggle("none", text === NONE);
}

/** @param {Job} job */
function reasonText(job) {
  if (job.state !== "queued" || job.intent === "hold") return job.reason;
  return waitText(job) + (job.preemptions > 0 ? `; preempted ${times(job.preemptions)}` : "");
}

/** Its position in the queue. @param {Job} job */
function positionText(job) {
  if (job.state !== "queued" || job.queue_position === null) return "";
  return job.queue_position === 1 ? "next" : `position ${job.queue_position}`;
}

/** @param {Job} job */
function stepsText(job) {
  if (job.step === null && job.estimated_step !== null) return `step ~${count(job.estimated_step)}`;
  if (job.step === null && job.estimated_epoch !== null) return `epoch ~${count(job.estimated_epoch)}`;
  if (job.step === null) return job.state === "queued" ? "" : (job.phase ?? "");
  const epoch = job.epoch === null ? "" : ` · epoch ${outOf(job.epoch, job.epochs)}`;
  return `step ${outOf(job.step, job.steps)}${epoch}`;
}
