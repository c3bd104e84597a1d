/**
 * The list of jobs: totals, slots, sections in the order in which people care, a filter, and actions on many jobs.
 *
 * @import { JobPublic as Job, OverviewItem, MetricSeries } from "../shared/api-types.d.ts"
 * @typedef {import("./job-row.js").ExperimentRow} ExperimentRow
 * @typedef {import("./job-row.js").JobRow} JobRow
 * @typedef {import("../shared/job-actions.js").JobAction} BulkAction
 */
import { me } from "../shared/account.js";
import { call, experimentUrl, messageOf, Problem, warn, MAX_COMPARED, compareUrl } from "../shared/api.js";
import { showInTab, remember, remembered } from "../shared/browser-storage.js";
import { ConfirmDialog } from "../shared/confirm-dialog.js";
import { byId, h, patchChildren, setText } from "../shared/dom.js";
import { count, counted, percent } from "../shared/format.js";
import { ARCHIVE, CANCEL, DELETE, DRAIN, HOLD, NOTE, PRIORITY, RELEASE, SEEN, TAG } from "../shared/job-actions.js";
import { hasEnded } from "../shared/job-state.js";
import { focusOn, registerKeys } from "../shared/keys.js";
import { keepFresh, markReady } from "../shared/live-page.js";
import { DebouncedRefresh, every } from "../shared/timing.js";
import { showDevices, showShares } from "./device-bars.js";
import { FilterLine } from "./filter-line.js";
import { JobTable } from "./job-table.js";

// --- What can be done to all selected jobs: one question, then one request for each job, and the results.

/** By the id of the button. @type {Record<string, BulkAction>} */
const ACTIONS = {
  "bulk-hold": HOLD,
  "bulk-drain": DRAIN,
  "bulk-release": RELEASE,
  "bulk-priority": PRIORITY,
  "bulk-tag": TAG,
  "bulk-note": NOTE,
  "bulk-seen": SEEN,
  "bulk-archive": ARCHIVE,
  "bulk-cancel": CANCEL,
  "bulk-delete": DELETE,
};

class BulkActions {
  #dialog = new ConfirmDialog();
  /** @type {Job[]} */
  #selected = [];
  #onChange;

  /** @param {() => void} onChange called when something has been done */
  constructor(onChange) {
    this.#onChange = onChange;
    for (const [button, action] of Object.entries(ACTIONS)) byId(button).addEventListener("click", () => this.#confirm(action));
    void me.then(() => this.show(this.#selected));
  }

  /** @param {Job[]} selected */
  show(selected) {
    this.#selected = selected;
    byId("bulk").hidden = selected.length === 0;
    setText(byId("bulk-count"), `${selected.length} selected`);
    for (const [button, { possible }] of Object.entries(ACTIONS)) byId(button, HTMLButtonElement).disabled = !selected.some(possible);
    const compare = byId("bulk-compare", HTMLAnchorElement);
    compare.href = compareUrl(selected.map(({ id }) => id));
    setText(compare, selected.length > MAX_COMPARED ? `Compare the first ${MAX_COMPARED}` : "Compare");
  }

  /** @param {BulkAction} action */
  #confirm(action) {
    const jobs = this.#selected.filter(action.possible);
    const skipped = this.#selected.length - jobs.length;
    const skippedText = skipped ? `${counted(skipped, "selected job is", "selected jobs are")} skipped: their state, or your permissions, do not allow it.` : [];
    const losses = jobs.flatMap((job) => {
      const loss = action.loss?.(job);
      if (!loss) return [];
      return jobs.length > 1 ? `#${job.number}: ${loss}` : loss;
    });
    const title = `${action.verb} ${counted(jobs.length, "job")}`;
    this.#dialog.open({
      title: `${title}?`,
      jobs,
      consequence: losses.length < jobs.length ? action.consequence : "",
      note: losses.concat(skippedText).join(" "),
      fields: action.fields?.(null),
      yes: title,
      run: (chosen) => this.#run(action, new Set(jobs.map(({ id }) => id)), chosen),
    });
  }

  /**
   * @param {BulkAction} action @param {Set<string>} ids of the jobs that the question named @param {FormData} chosen
   */
  async #run(action, ids, chosen) {
    /** @type {string[]} */
    const errors = [];
    const jobs = this.#selected.filter((job) => ids.has(job.id) && action.possible(job));
    for (const job of jobs) await action.run(job, chosen).catch((error) => errors.push(`${job.name}: ${messageOf(error)}`));
    setText(byId("bulk-result"), [`${counted(jobs.length - errors.length, "job")} ${action.done}`, ...errors].join(" · "));
    this.#onChange();
  }
}

// --- A small curve of one metric for each running job. The metric is chosen for all rows; a job that has not logged it
// shows its first loss, or its first metric.

const METRIC_KEY = "rekindle-sparkline";
const INTERVAL = 5; // seconds
const MAX_ROWS = 16;
const MAX_NAMES = 100;
const MAX_POINTS = 40;

class Sparklines {
  #select = byId("metric", HTMLSelectElement);
  #rows;
  /** @type {Set<string>} */
  #names = new Set();
  #chosen = String(remembered(METRIC_KEY) ?? "");
  #isBusy = false;

  /** @param {() => JobRow[]} rows those of running jobs */
  constructor(rows) {
    this.#rows = rows;
    this.#select.addEventListener("change", () => {
      this.#chosen = this.#select.value;
      remember(METRIC_KEY, this.#chosen);
      void this.refresh();
    });
    every(INTERVAL, () => void this.refresh());
  }

  async refresh() {
    if (this.#isBusy) return;
    this.#isBusy = true;
    await Promise.all(this.#rows().slice(0, MAX_ROWS).map((row) => this.#draw(row).catch(warn("a metric"))));
    this.#isBusy = false;
  }

  /** @param {JobRow} row */
  async #draw(row) {
    const job = row.job;
    if (!job?.attempt) return;
    const { items } = await call("GET /jobs/{job_id}/metrics/names", { job_id: job.id, limit: MAX_NAMES });
    const names = items.map(({ name }) => name);
    this.#offer(names);
    const name = names.includes(this.#chosen) ? this.#chosen : (names.find((each) => /loss/i.test(each)) ?? names[0]);
    if (!name) return;
    const series = await call("GET /jobs/{job_id}/metrics", { job_id: job.id, name: [name], max_points: MAX_POINTS });
    row.showCurve(name, valuesOf(series.items));
  }

  /** @param {string[]} names */
  #offer(names) {
    for (const name of names) {
      if (this.#names.has(name) || this.#names.size >= MAX_NAMES) continue;
      this.#names.add(name);
      this.#select.add(new Option(name, name, false, name === this.#chosen));
    }
    byId("metric-choice").hidden = this.#names.size < 2;
  }
}

/** Finite values of all attempts, the latest last. @param {MetricSeries[]} series */
const valuesOf = (series) => series.flatMap(({ points }) => points.flatMap(([, , , value]) => value ?? [])).slice(-MAX_POINTS * 2);

// --- The best result of each ended experiment that the table shows, and the range of all its results. Each is read
// once.

const MAX_KNOWN = 500;
/** By the experiment and when its last job ended. @type {Map<string, Promise<{text: string}>>} */
const known = new Map();

/** @param {ExperimentRow[]} rows one after the other: the server reads the metrics of all jobs of each */
async function showResults(rows) {
  for (const row of rows) {
    const result = await resultOf(row).catch(warn("the result of an experiment"));
    if (result) row.showResult(result.text);
  }
}

/** @param {ExperimentRow} row */
function resultOf({ id, key }) {
  let result = known.get(key);
  if (!result) {
    if (known.size >= MAX_KNOWN) known.clear();
    result = call("GET /experiments/{experiment_id}/best", { experiment_id: id });
    known.set(key, result);
    result.catch(() => known.delete(key)); // the next refresh tries again
  }
  return result;
}

// --- A notice on the desktop when a job ends, while this page is open and after the person has asked for it.

const NOTICES_KEY = "rekindle-notices";

class DesktopNotices {
  #button = byId("notices", HTMLButtonElement);
  #isOn = "Notification" in globalThis && remembered(NOTICES_KEY) === true && Notification.permission === "granted";

  constructor() {
    this.#button.hidden = !("Notification" in globalThis);
    this.#button.addEventListener("click", () => void this.#toggle());
    this.#show("");
  }

  /** @param {Job} job that has just ended */
  ended({ id, name, number, state, reason }) {
    if (this.#isOn) new Notification(`#${number} ${name} ${state}`, { body: reason, tag: id });
  }

  async #toggle() {
    const permission = this.#isOn ? "" : await Notification.requestPermission();
    this.#isOn = permission === "granted";
    remember(NOTICES_KEY, this.#isOn);
    this.#show(permission === "denied" ? "The browser blocks notifications of this page" : "");
  }

  /** @param {string} problem */
  #show(problem) {
    this.#button.setAttribute("aria-pressed", String(this.#isOn));
    setText(this.#button, problem || (this.#isOn ? "Notifications on" : "Notify me"));
    this.#button.title = "Show a desktop notification when a job ends, while this page is open";
  }
}

// --- The keys of the queue: each does what a control of the page does.

/** Move the focus to the row before or after the focused one; to the first row where none has it. @param {1 | -1} step */
const move = (step) => () => {
  const links = /** @type {HTMLElement[]} */ ([...byId("jobs").querySelectorAll("a.job-name")]).filter((link) => link.checkVisibility());
  const at = links.findIndex((link) => link.closest("tr")?.contains(document.activeElement));
  const nextLink = links[at < 0 ? 0 : at + step];
  nextLink?.focus({ preventScroll: true });
  nextLink?.closest("tr")?.scrollIntoView({ block: "nearest" });
};

function selectRow() {
  document.activeElement?.closest("#jobs tr")?.querySelector("input")?.click();
}

/** Move the focus to the first action that is possible for the selected jobs. */
function toActions() {
  /** @type {HTMLElement | null} */ (byId("bulk").querySelector("button:enabled"))?.focus();
}

registerKeys("Queue", {
  "/": ["filter", focusOn("filter")],
  j: ["next job", move(1)],
  k: ["previous job", move(-1)],
  Enter: ["open the job", null],
  x: ["select the job, or unselect it", selectRow],
  a: ["actions on the selected jobs", toActions],
  u: ["clear the selection", () => byId("clear-selection").click()],
  m: ["show more or fewer jobs", () => byId("show-more").click()],
});

// --- The page.

const PAGE_SIZE = 50;
const FEW = 20; // rows of a section
const FEW_URGENT = 6; // rows that need a person: what runs stays on the first screen
const MANY = 200; // what the server computes positions for
const SHOWN_EXPERIMENTS = 5;
const REFRESH_DELAY_MS = 250;
const REORDER_DELAY_MS = 1000;

const filter = new FilterLine(() => refreshing.now());
const bulk = new BulkActions(() => refreshing.now());
const table = new JobTable((selected) => bulk.show(selected));
const sparklines = new Sparklines(() => table.runningRows);
const notices = new DesktopNotices();

/** @type {string | null} cursor of the next page */
let next = null;
let limit = FEW;
/** @type {Map<string, string>} last known state of each job */
const states = new Map();
/** Jobs whose state was fetched before the event of it came: totals and shares may be those from before. @type {Set<string>} */
const early = new Set();
let isLoaded = false;

async function showJobs() {
  const query = filter.query;
  const isFiltered = filter.isFiltered;
  try {
    const { alike, ...shown } = isFiltered ? await findJobs(query) : await readSections();
    if (JSON.stringify(query) !== JSON.stringify(filter.query)) return; // the filter has changed meanwhile
    setText(byId("filter-error"), "");
    table.show(shown, alike);
  } catch (error) {
    if (!(error instanceof Problem && error.status === 422)) throw error;
    setText(byId("filter-error"), messageOf(error));
    return markReady();
  }
  const none = table.isEmpty;
  byId("jobs").hidden = none;
  byId("nothing-yet").hidden = !none || isFiltered;
  byId("nothing-found").hidden = !none || !isFiltered;
  byId("pager").hidden = !isFiltered || (filter.isFirstPage && !next);
  byId("newer", HTMLButtonElement).disabled = filter.isFirstPage;
  byId("older", HTMLButtonElement).disabled = !next;
  markReady();
  isLoaded = true;
  void sparklines.refresh();
  void showResults(table.experimentRows);
}

/** @param {{q: string, cursor: string | null}} query */
async function findJobs(query) {
  const answer = await call("GET /jobs", { ...query, limit: PAGE_SIZE, owner: isMine() ? (await me).person : undefined });
  next = answer.next;
  byId("show-more").hidden = true;
  recordStates(answer.items);
  return { found: { items: answer.items.map(asItem), total: null }, alike: {} };
}

async function readSections() {
  const { needs_you: urgent, running, next: waiting, done, counts, alike } = await call("GET /overview", { limit, mine: isMine() });
  const needsYou = limit === FEW ? urgent.slice(0, FEW_URGENT) : urgent;
  const sections = [needsYou, running, waiting, done];
  recordStates(sections.flatMap((items) => items.flatMap(({ job }) => job ?? [])));
  const urgentRows = counts.needs_you - Object.values(alike).flat().length;
  const isCut = urgentRows > needsYou.length || counts.running > running.length || counts.next > waiting.length;
  byId("show-more").hidden = limit === FEW && !isCut && done.length < FEW;
  setText(byId("show-more"), limit === FEW ? "Show more" : "Show fewer");
  return {
    "needs-you": { items: needsYou, total: urgentRows },
    running: { items: running, total: counts.running },
    next: { items: waiting, total: counts.next },
    done: { items: done, total: null },
    alike,
  };
}

/** @param {Job} job @returns {OverviewItem} */
const asItem = (job) => ({ kind: "job", reason: job.reason, at: null, job, experiment: null, device: null });

/** @param {Job[]} jobs */
function recordStates(jobs) {
  for (const { id, state } of jobs) {
    if (isLoaded && states.get(id) !== state) early.add(id);
    states.set(id, state);
  }
}

async function showTotals() {
  const [devices, { jobs, slots, goodput }] = await Promise.all([call("GET /devices"), call("GET /summary")]);
  showDevices(devices);
  const running = jobs.starting + jobs.running + jobs.recovering;
  setText(byId("total-running"), String(running));
  setText(byId("total-queued"), String(jobs.queued));
  setText(byId("total-slots"), `${slots.held} / ${slots.total}`);
  setText(byId("total-goodput"), percent(goodput));
  return running;
}

async function showExperiments() {
  const { items } = await call("GET /experiments", { limit: SHOWN_EXPERIMENTS });
  byId("experiments").hidden = items.length === 0;
  patchChildren(
    byId("experiment-links"),
    items.map(({ id, name, title, jobs, over, states: counts }) => {
      const ended = Object.entries(counts).reduce((sum, [state, found]) => sum + (hasEnded({ state }) ? found : 0), 0);
      const link = h("a", { href: experimentUrl(id), title, "data-focus": id }, h("bdi", {}, name));
      return h("li", {}, link, h("span", { class: "muted" }, over ? counted(jobs, "job") : `${count(ended)} of ${count(jobs)}`));
    }),
  );
}

/** The state of all in the tab. */
async function refresh() {
  const [running, { counts }, , { owners }] = await Promise.all([showTotals(), call("GET /overview", { limit: 1 }), showJobs(), showShares(), showExperiments(), showTimeline()]);
  mine.hidden = owners.length < 2 && !isMine();
  byId("jobs").classList.toggle("one-owner", owners.length < 2);
  showInTab(counts.needs_you, running);
}

/** A job that is shown changes in place; a new one, or one whose state changed, belongs elsewhere: refresh. */
const refreshing = keepFresh(refresh, REFRESH_DELAY_MS, (event, data) => {
  if (event === "deleted") table.remove(data.id);
  if (event !== "job") return event === "deleted";
  const [before, isEarly] = [states.get(data.id), early.delete(data.id)];
  table.update(data);
  states.set(data.id, data.state);
  if (before && before !== data.state && hasEnded(data)) notices.ended(data);
  if (before === data.state && data.state === "queued") reordering.soon();
  return isEarly || before !== data.state;
});

/** The scheduler writes a new position, reason or estimate to many jobs at once. */
const reordering = new DebouncedRefresh(showJobs, REORDER_DELAY_MS);

/** @param {() => void} turn */
function turnPage(turn) {
  turn();
  refreshing.now();
  scrollTo({ top: 0 });
}

// --- Only the jobs of the person: this browser remembers it.

const MINE_KEY = "rekindle-mine";
const mine = byId("mine", HTMLButtonElement);
const isMine = () => remembered(MINE_KEY) === true;
mine.setAttribute("aria-pressed", String(isMine()));
mine.addEventListener("click", () => {
  remember(MINE_KEY, !isMine());
  mine.setAttribute("aria-pressed", String(isMine()));
  refreshing.now();
});

// --- The slots over time, loaded when somebody opens them.

const TIMELINE_KEY = "rekindle-timeline";
const TIMELINE_INTERVAL = 20; // seconds: what the scheduler predicts changes as often
const timeline = byId("timeline", HTMLDetailsElement);
async function showTimeline() {
  if (!timeline.open) return;
  const loaded = /** @type {typeof import("./queue-timeline.js")} */ (await import(new URL("./queue-timeline.js", import.meta.url).href));
  await loaded.showTimeline().catch(warn("the slots over time"));
}
timeline.addEventListener("toggle", () => {
  remember(TIMELINE_KEY, timeline.open);
  void showTimeline();
});
timeline.open = remembered(TIMELINE_KEY) === true;
every(TIMELINE_INTERVAL, () => void showTimeline());

byId("jobs").addEventListener("seen", () => refreshing.now()); // all failures of one cause
byId("older").addEventListener("click", () => turnPage(() => filter.nextPage(next)));
byId("newer").addEventListener("click", () => turnPage(() => filter.previousPage()));
byId("clear-selection").addEventListener("click", () => table.clearSelection());
byId("show-more").addEventListener("click", () => {
  limit = limit === FEW ? MANY : FEW;
  refreshing.now();
});
