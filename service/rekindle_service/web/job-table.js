/** The table of jobs: one row each, changed in place, so that focus and selection survive every update. */
import { badge, setBadge, stateWord } from "./badge.js";
import { everySecond } from "./clock.js";
import { arrange, h, setText } from "./dom.js";
import { NONE, brief, count, localTime, outOf, place, ranksText, secondsSince, waitText } from "./format.js";
import { progressBar, setProgress } from "./progress-bar.js";

/** @typedef {import("./api.js").Job} Job */

export class JobTable {
  #body;
  #all;
  #onChoice;
  /** @type {Map<string, JobRow>} */
  #rows = new Map();
  /** @type {Map<string, Job>} ticked ones, also those on other pages of the list */
  #chosen = new Map();

  /**
   * @param {HTMLElement} body
   * @param {HTMLInputElement} all ticks every row that is shown
   * @param {(chosen: Job[]) => void} onChoice
   */
  constructor(body, all, onChoice) {
    this.#body = body;
    this.#all = all;
    this.#onChoice = onChoice;
    body.addEventListener("change", ({ target }) => this.#tick([/** @type {HTMLInputElement} */ (target).value], /** @type {HTMLInputElement} */ (target).checked));
    all.addEventListener("change", () => this.#tick([...this.#rows.keys()], all.checked));
    everySecond(() => this.#rows.forEach((row) => row.tick()));
  }

  /** @param {Job[]} jobs in the order to show */
  show(jobs) {
    const rows = jobs.map((job) => {
      const row = this.#rows.get(job.id) ?? new JobRow();
      row.update(job);
      return row;
    });
    this.#rows = new Map(jobs.map((job, index) => [job.id, rows[index]]));
    arrange(this.#body, rows.map((row) => row.node));
    for (const job of jobs) if (this.#chosen.has(job.id)) this.#chosen.set(job.id, job);
    this.#choiceChanged();
  }

  /**
   * @param {Job} job
   * @returns {boolean} false where the table does not show that job
   */
  update(job) {
    const row = this.#rows.get(job.id);
    row?.update(job);
    if (this.#chosen.has(job.id)) {
      this.#chosen.set(job.id, job);
      this.#choiceChanged();
    }
    return row !== undefined;
  }

  /** The job is gone. @param {string} id */
  forget(id) {
    if (this.#chosen.delete(id)) this.#choiceChanged();
  }

  chooseNone() {
    this.#chosen.clear();
    this.#choiceChanged();
  }

  /**
   * @param {string[]} ids of shown rows
   * @param {boolean} on
   */
  #tick(ids, on) {
    for (const id of ids) {
      const job = this.#rows.get(id)?.job;
      if (on && job) this.#chosen.set(id, job);
      else this.#chosen.delete(id);
    }
    this.#choiceChanged();
  }

  #choiceChanged() {
    const ticked = [...this.#rows].filter(([id, row]) => (row.ticked = this.#chosen.has(id))).length;
    this.#all.checked = ticked > 0 && ticked === this.#rows.size;
    this.#all.indeterminate = ticked > 0 && ticked < this.#rows.size;
    this.#onChoice([...this.#chosen.values()]);
  }
}

class JobRow {
  #box = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox" }));
  #badge = badge("queued");
  #place = h("span", { class: "under" });
  #name = h("a", { class: "job-name" });
  #what = h("span", { class: "under what" });
  #bar = progressBar("progress");
  #steps = h("span", { class: "under" });
  #eta = h("td", { class: "number eta", "data-label": "Time left" });
  #ranks = h("td", { class: "number", "data-label": "Ranks" });
  #restarts = h("td", { class: "number", "data-label": "Restarts" });
  #sentence = h("bdi");
  #where = h("span", { class: "place" });
  #age = h("time");
  /** @type {Job | null} */
  #job = null;

  node = h(
    "tr",
    {},
    h("td", { class: "choice" }, this.#box),
    h("td", { class: "state" }, this.#badge, this.#place),
    h("th", { scope: "row", class: "job" }, this.#name, this.#what),
    h("td", { class: "progress" }, this.#bar, this.#steps),
    this.#eta,
    this.#ranks,
    this.#restarts,
    h("td", { class: "note" }, this.#sentence, this.#where),
    h("td", { class: "number age", "data-label": "Age" }, this.#age),
  );

  get job() {
    return this.#job;
  }

  /** @param {boolean} on */
  set ticked(on) {
    this.#box.checked = on;
    this.node.classList.toggle("ticked", on);
  }

  /** @param {Job} job an older version than the one shown changes nothing */
  update(job) {
    if (this.#job && job.version < this.#job.version) return;
    this.#job = job;
    this.#box.value = job.id;
    this.#box.setAttribute("aria-label", `Choose job ${job.number}, ${job.name}`);
    setBadge(this.#badge, stateWord(job));
    setText(this.#place, placeText(job));
    setText(this.#name, job.name);
    this.#name.setAttribute("href", `/jobs/${encodeURIComponent(job.id)}`);
    this.#name.title = job.name;
    setText(this.#what, whatText(job));
    this.#what.title = this.#what.textContent ?? "";
    const steps = stepsText(job);
    setText(this.#steps, steps);
    setProgress(this.#bar, job, steps);
    this.#bar.hidden = job.progress === null && job.state !== "succeeded";
    setFigure(this.#eta, brief(job.eta_seconds));
    setFigure(this.#ranks, ranksText(job));
    setFigure(this.#restarts, job.restarts ? count(job.restarts) : NONE);
    const [sentence, where] = noteTexts(job);
    setText(this.#sentence, sentence);
    setText(this.#where, where);
    this.#age.setAttribute("datetime", job.created_at);
    this.#age.title = `submitted ${localTime(job.created_at)}`;
    this.tick();
  }

  tick() {
    if (this.#job) setText(this.#age, brief(secondsSince(this.#job.created_at)));
  }
}

/**
 * A figure that there is nothing to say about yet takes no room on a phone.
 *
 * @param {HTMLElement} cell
 * @param {string} text
 */
function setFigure(cell, text) {
  setText(cell, text);
  cell.classList.toggle("none", text === NONE);
}

/** What tells jobs of the same name apart. @param {Job} job */
const whatText = (job) => [`#${job.number}`, ...job.args].join(" ");

/** Where it stands in the queue. @param {Job} job */
function placeText(job) {
  if (job.state !== "queued" || job.queue_position === null) return "";
  return job.queue_position === 1 ? "next in line" : `no. ${job.queue_position} in line`;
}

/** @param {Job} job */
function stepsText(job) {
  if (job.step === null) return job.state === "queued" ? "" : (job.phase ?? "");
  const epoch = job.epoch === null ? "" : ` · epoch ${outOf(job.epoch, job.epochs)}`;
  return `step ${outOf(job.step, job.steps)}${epoch}`;
}

/**
 * The one sentence that matters now (why it ended or stumbled, else what it waits for) and where that was.
 *
 * @param {Job} job
 * @returns {[string, string]}
 */
function noteTexts(job) {
  const told = job.outcome && job.outcome.class !== "success" && job.state !== "running" ? job.outcome : null;
  const wait = waitText(job);
  return told ? [told.message, place(told)] : [wait || (job.notice ?? ""), ""];
}
