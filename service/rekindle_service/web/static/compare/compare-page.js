/**
 * The page that compares jobs: what they were submitted with, how they went, and their curves in shared charts.
 *
 * @import { CurvePublic as Curve, JobPublic as Job, AttemptPublic as Attempt, ConfigurationPublic as Configuration, MetricName } from "../shared/api-types.d.ts"
 * @typedef {{job: Job, configuration: Configuration, metrics: MetricName[], attempts: Attempt[]}} Compared
 * @typedef {import("../results/row-view.js").Dimension & {texts: string[], differs: boolean}} ComparedLine
 */
import { MetricStore, resumeSteps, sortMetrics } from "../charts/metric-store.js";
import { MultiJobCharts } from "../charts/multi-job-charts.js";
import { ResultCharts } from "../results/result-charts.js";
import { bestValue, listen, sortHeading, swatch } from "../results/row-parts.js";
import { RowView, bestRows } from "../results/row-view.js";
import { call, compareUrl, isNotFound, jobUrl, MAX_COMPARED } from "../shared/api.js";
import { byId, h, patchChildren, setText } from "../shared/dom.js";
import { NONE, count, duration, outOf, percent, secondsBetween, significant, speed } from "../shared/format.js";
import { compareParameters, parametersOf } from "../shared/job-parameters.js";
import { badge, hasEnded, stateWord } from "../shared/job-state.js";
import { keepFresh, markReady } from "../shared/live-page.js";

// --- The lines of a comparison: parameters and results of jobs, as text for the table and as values for sorting and
// charts. Pure.

/** Further metrics are in the charts alone. */
const MAX_METRICS = 30;

/** @param {Compared[]} compared @returns {ComparedLine[]} */
function parameterLines(compared) {
  const lines = compareParameters(compared.map(({ job, configuration }) => parametersOf(job, configuration)));
  return lines.map(({ name, values, differs }) => ({ name, isResult: false, values: values.map((value) => value || null), best: [], texts: values, differs }));
}

/** How each job went, and the latest value of each metric. @param {Compared[]} compared @returns {ComparedLine[]} */
function resultLines(compared) {
  const jobs = compared.map(({ job }) => job);
  const line = (/** @type {string} */ name, /** @type {(job: Job) => number | null} */ value, /** @type {(job: Job) => string} */ text, /** @type {"min" | "max" | null} */ goal = null) => {
    const values = jobs.map(value);
    return { name, isResult: true, values, best: bestRows(values, goal), texts: jobs.map(text), differs: false };
  };
  const seconds = (/** @type {Job} */ job) => (job.started_at ? secondsBetween(job.started_at, job.ended_at) : null);
  return [
    line("step", (job) => job.step, (job) => outOf(job.step, job.steps)),
    line("time since start", seconds, (job) => (job.started_at ? duration(seconds(job)) : NONE)),
    line("speed", (job) => job.steps_per_second, (job) => speed(job.steps_per_second), "max"),
    line("attempts", (job) => job.attempt, (job) => count(job.attempt)),
    line("goodput", (job) => job.goodput, (job) => percent(job.goodput), "max"),
    ...metricNames(compared).slice(0, MAX_METRICS).map((name) => metricLine(compared, name)),
  ];
}

/** @param {Compared[]} compared */
const metricNames = (compared) => [...new Set(compared.flatMap(({ metrics }) => metrics.map(({ name }) => name)))];

/** @param {Compared[]} compared @param {string} name */
const goalOf = (compared, name) => compared.flatMap(({ metrics }) => metrics).find((metric) => metric.name === name)?.goal ?? null;

/** @param {Compared[]} compared @param {string} name @returns {ComparedLine} */
function metricLine(compared, name) {
  const latest = compared.map(({ metrics }) => metrics.find((metric) => metric.name === name));
  const values = latest.map((metric) => metric?.value ?? null);
  const goal = goalOf(compared, name);
  return { name, isResult: true, values, best: bestRows(values, goal), texts: latest.map(metricText), differs: false };
}

/** @param {MetricName | undefined} metric */
function metricText(metric) {
  if (metric === undefined) return "";
  return `${metric.value === null ? "not finite" : significant(metric.value)} at ${metric.step === metric.epoch ? "epoch" : "step"} ${count(metric.step)}`;
}

// --- The page.

const MAX_OFFERED = 50;
/** The server reads everything for a refresh: not more often than this. */
const REFRESH_DELAY_MS = 1500;
const MAX_POINTS = 500;
/** More columns are narrower. */
const FEW = 8;

const view = new RowView(() => draw(), () => restyle());
const resultCharts = new ResultCharts(view);
const curves = new MultiJobCharts(view);
const add = byId("add-job", HTMLSelectElement);
const showEqual = byId("show-equal", HTMLInputElement);
/** What was read of each job, until it changes. @type {Map<string, {facts: Promise<Compared | null>, curves: Map<string, Promise<Curve[]>>}>} */
const known = new Map();
/** Ids of jobs that have changed since the last refresh. @type {Set<string>} */
const changed = new Set();
/** @type {Compared[]} */
let compared = [];

/** The ids in the URL. */
function chosenIds() {
  const ids = new URLSearchParams(location.search).get("jobs")?.split(",").filter(Boolean) ?? [];
  return [...new Set(ids)].slice(0, MAX_COMPARED);
}

/** @param {string[]} ids */
function choose(ids) {
  history.pushState(null, "", compareUrl(ids));
  view.read();
  refreshing.now();
}

async function refresh() {
  for (const { job } of compared) if (changed.has(job.id) || !hasEnded(job)) known.delete(job.id);
  changed.clear();
  const ids = chosenIds();
  const found = await Promise.all(ids.map((id) => entryOf(id).facts));
  if (ids.join() !== chosenIds().join()) return; // other jobs were chosen meanwhile
  compared = found.filter((each) => each !== null);
  const missing = ids.filter((_, index) => found[index] === null);
  setText(byId("missing"), missing.length ? `Job not found: ${missing.join(", ")}.` : "");
  await offerJobs(ids);
  show();
  const rows = new Map(compared.map(({ job }, index) => [job.id, index]));
  const goal = (/** @type {string} */ name) => goalOf(compared, name);
  await curves.show({ names: sortMetrics(metricNames(compared)), goal, rows, read: readCurves });
}

/** @param {string} id */
function entryOf(id) {
  const entry = known.get(id) ?? { facts: read(id), curves: new Map() };
  known.set(id, entry);
  entry.facts.catch(() => known.delete(id)); // the next refresh tries again
  return entry;
}

/** @param {string} id @returns {Promise<Compared | null>} null for a job that does not exist */
async function read(id) {
  try {
    const [job, configuration, metrics, attempts] = await Promise.all([
      call("GET /jobs/{job_id}", { job_id: id }),
      call("GET /jobs/{job_id}/configuration", { job_id: id }),
      call("GET /jobs/{job_id}/metrics/names", { job_id: id }),
      call("GET /jobs/{job_id}/attempts", { job_id: id }),
    ]);
    return { job, configuration, metrics: metrics.items, attempts: attempts.items };
  } catch (error) {
    if (isNotFound(error)) return null;
    throw error;
  }
}

/** The latest jobs that are not compared yet. @param {string[]} ids */
async function offerJobs(ids) {
  const { items } = await call("GET /jobs", { limit: MAX_OFFERED });
  const others = items.filter(({ id }) => !ids.includes(id));
  patchChildren(add, [new Option("Add a job …", ""), ...others.map((job) => new Option(`#${job.number} ${job.name}`, job.id))]);
  add.value = "";
  add.disabled = others.length === 0 || ids.length >= MAX_COMPARED;
}

function show() {
  byId("comparison").hidden = compared.length === 0;
  byId("nothing").hidden = compared.length > 0;
  draw();
  document.title = `${compared.length ? compared.map(({ job }) => job.name).join(" · ").slice(0, 80) : "Compare"} · rekindle`;
  markReady();
}

/** Everything that has a column, a line or a point for each job. */
function draw() {
  const [parameters, results] = [parameterLines(compared), resultLines(compared)];
  const dimensions = [...parameters.filter(({ differs }) => differs), ...results];
  view.paint(dimensions, compared.map(({ job }) => `#${job.number} ${job.name}`));
  const order = view.order([...parameters, ...results], compared.length);
  const jobs = compared.map(({ job }) => job);
  showJobs(byId("compared-jobs"), jobs, order, view, (id) => choose(chosenIds().filter((each) => each !== id)));
  showLines(byId("parameters"), showEqual.checked ? parameters : parameters.filter(({ differs }) => differs), order, view);
  showLines(byId("results"), results, order, view);
  restyleTable(byId("compared"), view);
  byId("compared").classList.toggle("whole", showEqual.checked);
  byId("compared").classList.toggle("many", compared.length > FEW);
  resultCharts.show(dimensions, compared.length);
  curves.draw();
}

/** The user points at another job. */
function restyle() {
  restyleTable(byId("compared"), view);
  resultCharts.restyle();
  curves.draw();
}

/** @param {string[]} names @returns {Promise<Curve[]>} */
async function readCurves(names) {
  const found = compared.map((each) => {
    const { curves: cache } = entryOf(each.job.id);
    const key = JSON.stringify(names);
    const read = cache.get(key) ?? readCurvesOf(each, names);
    cache.set(key, read);
    read.catch(() => cache.delete(key));
    return read;
  });
  return (await Promise.all(found)).flat();
}

/**
 * The steps of a job's curves that count: replayed ones are counted once.
 *
 * @param {Compared} compared @param {string[]} names @returns {Promise<Curve[]>}
 */
async function readCurvesOf({ job, metrics, attempts }, names) {
  const own = names.filter((name) => metrics.some((metric) => metric.name === name));
  if (!own.length) return [];
  const store = new MetricStore();
  store.load((await call("GET /jobs/{job_id}/metrics", { job_id: job.id, name: own, max_points: MAX_POINTS })).items);
  return own.map((name) => ({ job: job.id, name, points: store.parts(name, resumeSteps(attempts)).flatMap(({ kept }) => kept) }));
}

const refreshing = keepFresh(refresh, REFRESH_DELAY_MS, (event, data) => (event === "job" || event === "deleted") && known.has(data.id) && Boolean(changed.add(data.id)));
add.addEventListener("change", () => add.value && choose([...chosenIds(), add.value]));
showEqual.addEventListener("change", show);
listen(byId("compared"), view);
addEventListener("popstate", () => view.read());
byId("nothing-command").replaceChildren(h("code", {}, `${location.origin}/compare?jobs=FIRST,SECOND`));

// --- compare table: The comparison of jobs as a table: a column for each job, a line for each parameter or result.

/**
 * @param {HTMLElement} head @param {Job[]} jobs @param {number[]} order of their columns @param {RowView} view
 * @param {(id: string) => void} remove
 */
function showJobs(head, jobs, order, view, remove) {
  const corner = h("th", { scope: "col" }, h("span", { class: "hidden" }, "Parameter or result"));
  patchChildren(head, [h("tr", {}, corner, ...order.map((index) => heading(jobs[index], index, view, () => remove(jobs[index].id))))]);
}

/** @param {Job} job @param {number} index @param {RowView} view @param {() => void} onclick */
function heading(job, index, view, onclick) {
  const { id, number, name } = job;
  const link = h("a", { href: jobUrl(id), title: name, "data-focus": `job-${id}` }, h("bdi", {}, name));
  const label = `Remove ${name} from the comparison`;
  const remove = h("button", { type: "button", class: "quiet", "aria-label": label, "data-focus": `remove-${id}`, onclick }, "Remove");
  const below = h("span", { class: "compared" }, `#${number} `, badge(stateWord(job)), remove);
  return h("th", { scope: "col", "data-row": index, class: view.look(index).isHidden && "job-hidden" }, swatch(view, index), " ", link, below);
}

/** @param {HTMLElement} body @param {ComparedLine[]} lines @param {number[]} order of the columns @param {RowView} view */
function showLines(body, lines, order, view) {
  const nothing = order.length > 1 ? "The jobs have the same parameters." : "Add a second job to compare with.";
  const cell = (/** @type {ComparedLine} */ { texts, best }, /** @type {number} */ job) =>
    h("td", { "data-row": job }, best.includes(job) ? bestValue(texts[job]) : texts[job] ? h("bdi", {}, texts[job]) : NONE);
  const row = (/** @type {ComparedLine} */ line) =>
    h("tr", { class: line.differs && "differs" }, sortHeading(view, line.name, null, "row"), ...order.map((job) => cell(line, job)));
  patchChildren(body, lines.length ? lines.map(row) : [h("tr", {}, h("td", { colspan: order.length + 1, class: "muted" }, nothing))]);
}

/** Mark the column of the job that the user points at. @param {HTMLElement} table @param {RowView} view */
function restyleTable(table, view) {
  for (const cell of table.querySelectorAll("[data-row]")) cell.classList.toggle("pointed", Number(cell.getAttribute("data-row")) === view.highlighted);
}
