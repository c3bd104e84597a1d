/**
 * The page that compares jobs: what they were submitted with, how they went, and their curves in shared charts.
 *
 * @import { AttemptPublic as Attempt, ConfigurationPublic as Configuration, CurvePublic as Curve, JobPublic as Job, MetricName } from "../shared/api-types.d.ts"
 * @typedef {{job: Job, configuration: Configuration, metrics: MetricName[], attempts: Attempt[]}} Compared
 */
import { MultiJobCharts } from "../charts/multi-job-charts.js";
import { MetricStore, resumeSteps } from "../charts/metric-store.js";
import { call, isNotFound } from "../shared/api.js";
import { byId, h, patchChildren, setText } from "../shared/dom.js";
import { compareParameters, parametersOf } from "../shared/job-parameters.js";
import { keepFresh, markReady } from "../shared/live-page.js";
import { resultLines, showJobs, showLines } from "./compare-table.js";

/** As many as there are distinguishable colours. */
const MAX_JOBS = 8;
const MAX_OFFERED = 50;
/** The server reads everything for a refresh: not more often than this. */
const REFRESH_DELAY_MS = 1500;
const MAX_POINTS = 500;

const charts = new MultiJobCharts();
const add = byId("add-job", HTMLSelectElement);
const showEqual = byId("show-equal", HTMLInputElement);
/** @type {Compared[]} */
let compared = [];

/** The ids in the URL. */
function chosenIds() {
  const ids = new URLSearchParams(location.search).get("jobs")?.split(",").filter(Boolean) ?? [];
  return [...new Set(ids)].slice(0, MAX_JOBS);
}

/** @param {string[]} ids */
function choose(ids) {
  history.pushState(null, "", ids.length ? `/compare?jobs=${ids.map(encodeURIComponent).join(",")}` : "/compare");
  refreshing.now();
}

async function refresh() {
  const ids = chosenIds();
  const found = await Promise.all(ids.map(read));
  if (ids.join() !== chosenIds().join()) return; // other jobs were chosen meanwhile
  compared = found.filter((each) => each !== null);
  const missing = ids.filter((_, index) => found[index] === null);
  setText(byId("missing"), missing.length ? `Job not found: ${missing.join(", ")}.` : "");
  await offerJobs(ids);
  show();
  const names = [...new Set(compared.flatMap(({ metrics }) => metrics.map(({ name }) => name)))];
  await charts.show({ names, rows: new Map(compared.map(({ job }, index) => [job.id, index])), read: readCurves });
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
  add.disabled = others.length === 0 || ids.length >= MAX_JOBS;
}

function show() {
  byId("comparison").hidden = compared.length === 0;
  byId("nothing").hidden = compared.length > 0;
  const jobs = compared.map(({ job }) => job);
  showJobs(byId("compared-jobs"), jobs, (id) => choose(chosenIds().filter((each) => each !== id)));
  const lines = compareParameters(compared.map(({ job, configuration }) => parametersOf(job, configuration)));
  showLines(byId("parameters"), showEqual.checked ? lines : lines.filter(({ differs }) => differs), jobs.length);
  byId("comparison").querySelector("table")?.classList.toggle("whole", showEqual.checked);
  showLines(byId("results"), resultLines(jobs, compared.map(({ metrics }) => metrics)), jobs.length);
  document.title = `${jobs.length ? jobs.map(({ name }) => name).join(" · ").slice(0, 80) : "Compare"} · rekindle`;
  markReady();
}

/**
 * The steps of each job's curves that count: replayed ones are counted once.
 *
 * @param {string[]} names @returns {Promise<Curve[]>}
 */
async function readCurves(names) {
  const curves = compared.map(async ({ job, metrics, attempts }) => {
    const own = names.filter((name) => metrics.some((metric) => metric.name === name));
    if (!own.length) return [];
    const store = new MetricStore();
    store.load((await call("GET /jobs/{job_id}/metrics", { job_id: job.id, name: own, max_points: MAX_POINTS })).items);
    return own.map((name) => ({ job: job.id, name, points: store.parts(name, resumeSteps(attempts)).flatMap(({ kept }) => kept) }));
  });
  return (await Promise.all(curves)).flat();
}

const refreshing = keepFresh(refresh, REFRESH_DELAY_MS, (event, data) => (event === "job" || event === "deleted") && chosenIds().includes(data.id));
add.addEventListener("change", () => add.value && choose([...chosenIds(), add.value]));
showEqual.addEventListener("change", show);
byId("nothing-command").replaceChildren(h("code", {}, `${location.origin}/compare?jobs=FIRST,SECOND`));
