/** The page that compares jobs: what they were given, how they went, and their curves over each other. */
import { Problem, listAttempts, listJobs, readJob } from "./api.js";
import { resultLines, showJobs, showLines } from "./compare-table.js";
import { byId, h, redraw, setText } from "./dom.js";
import { listMetricNames, listSeries, readConfiguration } from "./job-api.js";
import { Overlay } from "./overlay.js";
import { parametersOf, sideBySide } from "./parameters.js";
import { Refreshing } from "./refreshing.js";
import { Metrics } from "./series.js";
import { Stream } from "./stream.js";

/** As many as there are colours that can be told apart. */
const MOST_JOBS = 8;
const OFFERED = 50;
/** Reading everything is work for the server: not more often than this. */
const SETTLE_MS = 1500;
const MOST_POINTS = 500;

/**
 * @typedef {object} Compared
 * @property {import("./api.js").Job} job
 * @property {import("./job-api.js").ConfigurationFacts | null} facts
 * @property {import("./job-api.js").MetricName[]} metrics
 * @property {Map<number, number>} resumedFrom step that each attempt went on from
 */

const overlay = new Overlay();
const add = /** @type {HTMLSelectElement} */ (byId("add-job"));
const all = /** @type {HTMLInputElement} */ (byId("show-equal"));
/** @type {Compared[]} */
let compared = [];
const refreshing = new Refreshing(refresh, SETTLE_MS);

/** The ids in the address. */
function chosen() {
  const ids = new URLSearchParams(location.search).get("jobs")?.split(",").filter(Boolean) ?? [];
  return [...new Set(ids)].slice(0, MOST_JOBS);
}

/** @param {string[]} ids */
function choose(ids) {
  history.pushState(null, "", ids.length ? `/compare?jobs=${ids.map(encodeURIComponent).join(",")}` : "/compare");
  refreshing.now();
}

async function refresh() {
  try {
    const ids = chosen();
    const found = await Promise.all(ids.map(read));
    if (ids.join() !== chosen().join()) return; // chosen anew meanwhile
    compared = found.filter((each) => each !== null);
    const missing = ids.filter((_, index) => found[index] === null);
    setText(byId("missing"), missing.length ? `Not here any more: ${missing.join(", ")}.` : "");
    await offer(ids);
    show();
    await overlay.show({ names: metricNames(), rows: new Map(compared.map(({ job }, index) => [job.id, index])), read: readCurves });
  } catch (error) {
    console.warn("the jobs could not be read", error);
  }
}

/**
 * @param {string} id
 * @returns {Promise<Compared | null>} null for a job that there is not
 */
async function read(id) {
  try {
    const [job, facts, metrics, attempts] = await Promise.all([readJob(id), readConfiguration(id), listMetricNames(id), listAttempts(id)]);
    return { job, facts, metrics, resumedFrom: new Map(attempts.map((attempt) => [attempt.number, attempt.resumed_from_step ?? 0])) };
  } catch (error) {
    if (error instanceof Problem && error.status === 404) return null;
    throw error;
  }
}

/** The newest jobs that are not compared yet. @param {string[]} ids */
async function offer(ids) {
  const { items } = await listJobs({ limit: OFFERED });
  const others = items.filter(({ id }) => !ids.includes(id));
  redraw(add, [new Option("Add a job …", ""), ...others.map((job) => new Option(`#${job.number} ${job.name}`, job.id))]);
  add.value = "";
  add.disabled = others.length === 0 || ids.length >= MOST_JOBS;
}

function show() {
  byId("comparison").hidden = compared.length === 0;
  byId("nothing").hidden = compared.length > 0;
  const jobs = compared.map(({ job }) => job);
  showJobs(byId("compared-jobs"), jobs, (id) => choose(chosen().filter((each) => each !== id)));
  const lines = sideBySide(compared.map(({ job, facts }) => parametersOf(job, facts)));
  showLines(byId("parameters"), all.checked ? lines : lines.filter(({ differs }) => differs), jobs.length);
  byId("comparison").querySelector("table")?.classList.toggle("whole", all.checked);
  const results = resultLines(jobs, compared.map(({ metrics }) => metrics));
  showLines(byId("results"), results, jobs.length);
  document.title = `${jobs.length ? jobs.map(({ name }) => name).join(" · ").slice(0, 80) : "Compare"} · rekindle`;
  byId("main").setAttribute("aria-busy", "false");
}

const metricNames = () => [...new Set(compared.flatMap(({ metrics }) => metrics.map(({ name }) => name)))];

/**
 * What counts of each job's curves: steps that a later attempt has done again are left out.
 *
 * @param {string[]} names
 * @returns {Promise<import("./api.js").Curve[]>}
 */
async function readCurves(names) {
  const curves = compared.map(async ({ job, metrics, resumedFrom }) => {
    const own = names.filter((name) => metrics.some((metric) => metric.name === name));
    const series = new Metrics();
    own.forEach((name) => series.track(name));
    if (own.length) series.load(await listSeries(job.id, own, MOST_POINTS));
    return own.map((name) => ({ job: job.id, name, points: series.parts(name, resumedFrom).flatMap(({ kept }) => kept) }));
  });
  return (await Promise.all(curves)).flat();
}

/**
 * @param {string} event
 * @param {any} data
 */
function hear(event, data) {
  if ((event !== "job" && event !== "deleted") || !chosen().includes(data.id)) return;
  refreshing.soon();
}

add.addEventListener("change", () => add.value && choose([...chosen(), add.value]));
all.addEventListener("change", show);
addEventListener("popstate", () => refreshing.now());
byId("nothing-command").replaceChildren(h("code", {}, `${location.origin}/compare?jobs=FIRST,SECOND`));
new Stream({ job: null, log: null }, { live: () => refreshing.now(), event: hear });
