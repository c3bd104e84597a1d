/**
 * The page that compares jobs: what they were submitted with, how they went, and their curves in shared charts.
 *
 * @import { CurvePublic as Curve, JobPublic as Job, AttemptPublic as Attempt, ConfigurationPublic as Configuration, JobDiff, MetricName } from "../shared/api-types.d.ts"
 * @typedef {{key: string, attempt: number | null, job: Job, configuration: Configuration, metrics: MetricName[], attempts: Attempt[]}} Compared
 * key: as in the URL, `ID` for a job or `ID@2` for its second attempt
 * @typedef {import("../results/row-view.js").Dimension & {texts: string[], differs: boolean}} ComparedLine
 */
import { MetricStore, resumeSteps, sortMetrics } from "../charts/metric-store.js";
import { MultiJobCharts } from "../charts/multi-job-charts.js";
import { ResultCharts } from "../results/result-charts.js";
import { bestValue, listen, sortHeading, swatch } from "../results/row-parts.js";
import { RowView, bestRows } from "../results/row-view.js";
import { call, compareUrl, isNotFound, jobUrl, MAX_COMPARED, messageOf } from "../shared/api.js";
import { byId, h, patchChildren, setOptions, setText } from "../shared/dom.js";
import { NONE, count, duration, outOf, percent, secondsBetween, significant, speed } from "../shared/format.js";
import { compareParameters, parametersOf } from "../shared/job-parameters.js";
import { badge, hasEnded, stateWord } from "../shared/job-state.js";
import { keepFresh, markReady } from "../shared/live-page.js";
import { DebouncedRefresh } from "../shared/timing.js";
import { diffNodes } from "../shared/training-diff.js";

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
    ...metricNames(compared).slice(0, MAX_METRICS).map((name) => metricLine(compared, name)).filter(({ texts }) => texts.some(Boolean)),
  ];
}

/** @param {Compared[]} compared */
const metricNames = (compared) => [...new Set(compared.flatMap(({ metrics }) => metrics.map(({ name }) => name)))];

/** @param {Compared[]} compared @param {string} name */
const goalOf = (compared, name) => compared.flatMap(({ metrics }) => metrics).find((metric) => metric.name === name)?.goal ?? null;

/** @param {Compared[]} compared @param {string} name @returns {ComparedLine} */
function metricLine(compared, name) {
  const latest = compared.map(({ attempt, metrics }) => (attempt === null ? metrics.find((metric) => metric.name === name) : undefined));
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
/** What was read of each job or attempt, until it changes. @type {Map<string, {facts: Promise<Compared | null>, curves: Map<string, Promise<Curve[]>>}>} */
const known = new Map();
/** Ids of jobs that have changed since the last refresh. @type {Set<string>} */
const changed = new Set();
/** @type {Compared[]} */
let compared = [];

/** The keys in the URL. */
function chosenKeys() {
  const keys = new URLSearchParams(location.search).get("jobs")?.split(",").filter(Boolean) ?? [];
  return [...new Set(keys)].slice(0, MAX_COMPARED);
}

/** @param {string} key */
const idOf = (key) => key.split("@")[0];

/** Other jobs are chosen: what is known of those before is not shown as theirs. */
function readUrl() {
  view.read();
  showDiff("");
}

/** @param {string[]} keys */
function choose(keys) {
  history.pushState(null, "", compareUrl(keys));
  readUrl();
  refreshing.now();
}

async function refresh() {
  for (const { key, job } of compared) if (changed.has(job.id) || !hasEnded(job)) known.delete(key);
  changed.clear();
  const keys = chosenKeys();
  const found = await Promise.all(keys.map((key) => entryOf(key).facts));
  if (keys.join() !== chosenKeys().join()) return; // other jobs were chosen meanwhile
  compared = found.filter((each) => each !== null);
  const missing = keys.filter((_, index) => found[index] === null);
  setText(byId("missing"), missing.length ? `Job not found: ${missing.join(", ")}.` : "");
  await offerJobs(keys.map(idOf));
  show();
  byId("digests").hidden = compared.length !== 2;
  diffs.now();
  const rows = new Map(compared.map(({ key }, index) => [key, index]));
  const goal = (/** @type {string} */ name) => goalOf(compared, name);
  await curves.show({ names: sortMetrics(metricNames(compared)), goal, rows, read: readCurves });
}

/** @param {string} key */
function entryOf(key) {
  const entry = known.get(key) ?? { facts: read(key), curves: new Map() };
  known.set(key, entry);
  entry.facts.catch(() => known.delete(key)); // the next refresh tries again
  return entry;
}

/** @param {string} key @returns {Promise<Compared | null>} null for what does not exist */
async function read(key) {
  const id = idOf(key);
  try {
    const [job, configuration, metrics, attempts] = await Promise.all([
      call("GET /jobs/{job_id}", { job_id: id }),
      call("GET /jobs/{job_id}/configuration", { job_id: id }),
      call("GET /jobs/{job_id}/metrics/names", { job_id: id }),
      call("GET /jobs/{job_id}/attempts", { job_id: id }),
    ]);
    const whole = { key, attempt: null, job, configuration, metrics: metrics.items, attempts: attempts.items };
    return key === id ? whole : ofAttempt(whole, Number(key.slice(id.length + 1)));
  } catch (error) {
    if (isNotFound(error)) return null;
    throw error;
  }
}

/** What is known of one attempt alone. @param {Compared} whole @param {number} number @returns {Compared | null} null for an attempt that does not exist */
function ofAttempt(whole, number) {
  const { job } = whole;
  const found = whole.attempts.find((each) => each.number === number);
  if (!found) return null;
  const { last_step: step, started_at, ended_at, world_size } = found;
  const own = { ...job, name: `${job.name}, attempt ${number}`, step, started_at, ended_at, world_size, steps_per_second: null, goodput: null };
  return { ...whole, attempt: number, job: own, attempts: [found] };
}

/** The verdict of the digests on two jobs or attempts, and the step at which their curves part. */
async function readDiff() {
  const [one, other] = compared;
  if (compared.length !== 2) return showDiff("");
  const wanted = { job_id: one.job.id, other: other.job.id, attempt: one.attempt, other_attempt: other.attempt };
  const found = await call("GET /jobs/{job_id}/diff/{other}", wanted).catch(messageOf);
  if (compared.map(({ key }) => key).join() === `${one.key},${other.key}`) showDiff(found);
}

/** @param {JobDiff | string} found the text of an error */
function showDiff(found) {
  patchChildren(byId("training-diff"), typeof found === "string" ? [h("p", { class: "error" }, found)] : diffNodes(found));
  curves.parting = typeof found === "string" ? null : (found.difference?.step ?? null);
  curves.draw();
}

/** The latest jobs that are not compared yet. @param {string[]} ids */
async function offerJobs(ids) {
  const { items } = await call("GET /jobs", { limit: MAX_OFFERED });
  const others = items.filter(({ id }) => !ids.includes(id));
  setOptions(add, [["", "Add a job …"], ...others.map((job) => [job.id, `#${job.number} ${job.name}`])], "");
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
  showJobs(order);
  showLines(byId("parameters"), showEqual.checked ? parameters : parameters.filter(({ differs }) => differs), order);
  showLines(byId("results"), results, order);
  restyleTable();
  byId("compared").classList.toggle("whole", showEqual.checked);
  byId("compared").classList.toggle("many", compared.length > FEW);
  resultCharts.show(dimensions, compared.length);
  curves.draw();
}

/** The user points at another job. */
function restyle() {
  restyleTable();
  resultCharts.restyle();
  curves.draw();
}

/** @param {string[]} names @returns {Promise<Curve[]>} */
async function readCurves(names) {
  const found = compared.map((each) => {
    const { curves: cache } = entryOf(each.key);
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
async function readCurvesOf({ key, attempt, job, metrics, attempts }, names) {
  const own = names.filter((name) => metrics.some((metric) => metric.name === name));
  if (!own.length) return [];
  const store = new MetricStore();
  store.load((await call("GET /jobs/{job_id}/metrics", { job_id: job.id, attempt, name: own, max_points: MAX_POINTS })).items);
  return own.map((name) => ({ job: key, name, points: store.parts(name, resumeSteps(attempts)).flatMap(({ kept }) => kept) }));
}

const diffs = new DebouncedRefresh(readDiff, 0);
const refreshing = keepFresh(refresh, REFRESH_DELAY_MS, (event, data) => (event === "job" || event === "deleted") && [...known.keys()].some((key) => idOf(key) === data.id) && Boolean(changed.add(data.id)));
add.addEventListener("change", () => add.value && choose([...chosenKeys(), add.value]));
showEqual.addEventListener("change", show);
listen(byId("compared"), view);
addEventListener("popstate", readUrl);
byId("nothing-command").replaceChildren(h("code", {}, `${location.origin}/compare?jobs=FIRST,SECOND`));

// --- compare table: The comparison of jobs as a table: a column for each job, a line for each parameter or result.

/** @param {number[]} order of their columns */
function showJobs(order) {
  const corner = h("th", { scope: "col" }, h("span", { class: "hidden" }, "Parameter or result"));
  patchChildren(byId("compared-jobs"), [h("tr", {}, corner, ...order.map((index) => heading(compared[index], index)))]);
}

/** @param {Compared} compared @param {number} index */
function heading({ key, job }, index) {
  const { id, number, name } = job;
  const onclick = () => choose(chosenKeys().filter((each) => each !== key));
  const link = h("a", { href: jobUrl(id), title: name, "data-focus": `job-${id}-${index}` }, h("bdi", {}, name));
  const label = `Remove ${name} from the comparison`;
  const remove = h("button", { type: "button", class: "quiet", "aria-label": label, "data-focus": `remove-${id}-${index}`, onclick }, "Remove");
  const below = h("span", { class: "compared" }, `#${number} `, badge(stateWord(job)), remove);
  return h("th", { scope: "col", "data-row": index, class: view.look(index).isHidden && "job-hidden" }, swatch(view, index), " ", link, below);
}

/** @param {HTMLElement} body @param {ComparedLine[]} lines @param {number[]} order of the columns */
function showLines(body, lines, order) {
  const nothing = order.length > 1 ? "The jobs have the same parameters." : "Add a second job to compare with.";
  const cell = (/** @type {ComparedLine} */ { texts, best }, /** @type {number} */ job) =>
    h("td", { "data-row": job }, best.includes(job) ? bestValue(texts[job]) : texts[job] ? h("bdi", {}, texts[job]) : NONE);
  const row = (/** @type {ComparedLine} */ line) =>
    h("tr", { class: line.differs && "differs" }, sortHeading(view, line.name, null, "row"), ...order.map((job) => cell(line, job)));
  patchChildren(body, lines.length ? lines.map(row) : [h("tr", {}, h("td", { colspan: order.length + 1, class: "muted" }, nothing))]);
}

/** Mark the column of the job that the user points at. */
function restyleTable() {
  for (const cell of byId("compared").querySelectorAll("[data-row]")) cell.classList.toggle("pointed", Number(cell.getAttribute("data-row")) === view.highlighted);
}
