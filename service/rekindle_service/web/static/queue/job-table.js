/**
 * The table of jobs: one row each, changed in place, so that focus and selection survive every update.
 *
 * @import { JobPublic as Job } from "../shared/api-types.d.ts"
 */
import { jobUrl } from "../shared/api.js";
import { KeyedChildren, byId, h, setText } from "../shared/dom.js";
import { NONE, brief, count, displacedText, failureLocation, localTime, outOf, ranksText, secondsSince, waitText } from "../shared/format.js";
import { badge, progressBar, setBadge, setProgress, stateWord } from "../shared/job-state.js";
import { everySecond } from "../shared/ticker.js";

export class JobTable {
  #body = byId("jobs");
  #all = byId("select-all", HTMLInputElement);
  #onSelection;
  /** @type {KeyedChildren<Job, JobRow>} */
  #rows = new KeyedChildren(this.#body, ({ id }) => id, () => new JobRow());
  /** @type {Map<string, Job>} selected ones, also those on other pages of the list */
  #selected = new Map();

  /** @param {(selected: Job[]) => void} onSelection */
  constructor(onSelection) {
    this.#onSelection = onSelection;
    this.#body.addEventListener("change", ({ target }) => target instanceof HTMLInputElement && this.#select([target.value], target.checked));
    this.#all.addEventListener("change", () => this.#select(this.#rows.views.keys(), this.#all.checked));
    everySecond(() => this.#rows.views.forEach((row) => row.tick()));
  }

  /** @param {Job[]} jobs in the order to show */
  show(jobs) {
    this.#rows.show(jobs);
    for (const job of jobs) if (this.#selected.has(job.id)) this.#selected.set(job.id, job);
    this.#selectionChanged();
  }

  /** The new version of a job, whether the table shows it or not. @param {Job} job */
  update(job) {
    this.#rows.views.get(job.id)?.update(job);
    if (!this.#selected.has(job.id)) return;
    this.#selected.set(job.id, job);
    this.#selectionChanged();
  }

  /** The job has been deleted. @param {string} id */
  remove(id) {
    if (this.#selected.delete(id)) this.#selectionChanged();
  }

  clearSelection() {
    this.#selected.clear();
    this.#selectionChanged();
  }

  /** @param {Iterable<any>} ids of shown rows @param {boolean} on */
  #select(ids, on) {
    for (const id of ids) {
      const job = this.#rows.views.get(id)?.job;
      if (on && job) this.#selected.set(id, job);
      else this.#selected.delete(id);
    }
    this.#selectionChanged();
  }

  #selectionChanged() {
    const rows = [...this.#rows.views.values()];
    const ticked = rows.filter((row) => (row.selected = this.#selected.has(row.job?.id ?? ""))).length;
    this.#all.checked = ticked > 0 && ticked === rows.length;
    this.#all.indeterminate = ticked > 0 && ticked < rows.length;
    this.#onSelection([...this.#selected.values()]);
  }
}

class JobRow {
  #box = h("input", { type: "checkbox" });
  #badge = badge("queued");
  #position = h("span", { class: "under" });
  #name = h("a", { class: "job-name" });
  #args = h("span", { class: "under args" });
  #owner = h("td", { class: "owner", "data-label": "Owner" });
  #bar = progressBar("progress");
  #steps = h("span", { class: "under" });
  #eta = h("td", { class: "number eta", "data-label": "Time left" });
  #ranks = h("td", { class: "number", "data-label": "Ranks" });
  #restarts = h("td", { class: "number", "data-label": "Restarts" });
  #sentence = h("bdi");
  #location = h("span", { class: "location" });
  #age = h("time");
  /** @type {Job | null} */
  job = null;

  node = h(
    "tr",
    {},
    h("td", { class: "choice" }, this.#box),
    h("td", { class: "state" }, this.#badge, this.#position),
    h("th", { scope: "row", class: "job" }, this.#name, this.#args),
    this.#owner,
    h("td", { class: "progress" }, this.#bar, this.#steps),
    this.#eta,
    this.#ranks,
    this.#restarts,
    h("td", { class: "note" }, this.#sentence, this.#location),
    h("td", { class: "number age", "data-label": "Age" }, this.#age),
  );

  /** @param {boolean} on */
  set selected(on) {
    this.#box.checked = on;
    this.node.classList.toggle("selected", on);
  }

  /** @param {Job} job an older version than the one shown changes nothing */
  update(job) {
    if (this.job && job.version < this.job.version) return;
    this.job = job;
    this.#box.value = job.id;
    this.#box.setAttribute("aria-label", `Select job ${job.number}, ${job.name}`);
    setBadge(this.#badge, stateWord(job));
    setText(this.#position, positionText(job));
    setText(this.#name, job.name);
    this.#name.href = jobUrl(job.id);
    this.#name.title = job.name;
    setText(this.#args, [`#${job.number}`, ...job.args].join(" "));
    this.#args.title = this.#args.textContent ?? "";
    setText(this.#owner, job.owner ?? "local");
    this.#owner.title = job.owner ?? "";
    const steps = stepsText(job);
    setText(this.#steps, steps);
    setProgress(this.#bar, job, steps);
    this.#bar.hidden = job.progress === null && job.state !== "succeeded";
    setFigure(this.#eta, brief(job.eta_seconds));
    setFigure(this.#ranks, ranksText(job));
    setFigure(this.#restarts, job.restarts ? count(job.restarts) : NONE);
    const failure = hasFailed(job) ? job.outcome : null;
    setText(this.#sentence, failure?.message ?? (displacedText(job) || waitText(job) || (job.notice ?? "")));
    setText(this.#location, failureLocation(failure));
    this.#age.dateTime = job.created_at ?? "";
    this.#age.title = `submitted ${localTime(job.created_at)}`;
    this.tick();
  }

  tick() {
    if (this.job) setText(this.#age, brief(secondsSince(this.job.created_at)));
  }
}

/** A job that was stopped for another one waits like any other. @param {Job} job */
function hasFailed({ outcome, state }) {
  if (!outcome || outcome.class === "success" || state === "running") return false;
  return !(state === "queued" && outcome.class === "preempted");
}

/** An empty figure takes no room on a phone. @param {HTMLElement} cell @param {string} text */
function setFigure(cell, text) {
  setText(cell, text);
  cell.classList.toggle("none", text === NONE);
}

/** Its position in the queue. @param {Job} job */
function positionText(job) {
  if (job.state !== "queued" || job.queue_position === null) return "";
  return job.queue_position === 1 ? "next" : `position ${job.queue_position}`;
}

/** @param {Job} job */
function stepsText(job) {
  if (job.step === null) return job.state === "queued" ? "" : (job.phase ?? "");
  const epoch = job.epoch === null ? "" : ` · epoch ${outOf(job.epoch, job.epochs)}`;
  return `step ${outOf(job.step, job.steps)}${epoch}`;
}
