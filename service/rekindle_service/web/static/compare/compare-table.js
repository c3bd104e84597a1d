/**
 * The comparison of jobs as a table: a column for each job, a line for each parameter or result.
 *
 * @import { JobPublic as Job, MetricName } from "../shared/api-types.d.ts"
 * @typedef {import("../shared/job-parameters.js").Line} Line
 */
import { swatch } from "../charts/multi-job-charts.js";
import { jobUrl } from "../shared/api.js";
import { h, patchChildren } from "../shared/dom.js";
import { NONE, count, duration, outOf, percent, secondsBetween, significant, speed } from "../shared/format.js";
import { badge, stateWord } from "../shared/job-state.js";

/** Further metrics are in the charts alone. */
const MAX_METRICS = 30;

/** @param {HTMLElement} head @param {Job[]} jobs @param {(id: string) => void} remove */
export function showJobs(head, jobs, remove) {
  const corner = h("th", { scope: "col" }, h("span", { class: "hidden" }, "Parameter or result"));
  patchChildren(head, [h("tr", {}, corner, ...jobs.map((job, index) => heading(job, swatch(index, jobs.length), () => remove(job.id))))]);
}

/** @param {Job} job @param {HTMLElement} colour @param {() => void} onclick */
function heading(job, colour, onclick) {
  const { id, number, name } = job;
  const link = h("a", { href: jobUrl(id), title: name, "data-focus": `job-${id}` }, h("bdi", {}, name));
  const label = `Remove ${name} from the comparison`;
  const remove = h("button", { type: "button", class: "quiet", "aria-label": label, "data-focus": `remove-${id}`, onclick }, "Remove");
  return h("th", { scope: "col" }, colour, " ", link, h("span", { class: "compared" }, `#${number} `, badge(stateWord(job)), remove));
}

/** @param {HTMLElement} body @param {Line[]} lines @param {number} columns */
export function showLines(body, lines, columns) {
  const nothing = columns > 1 ? "The jobs have the same parameters." : "Add a second job to compare with.";
  const row = (/** @type {Line} */ { name, values, differs }) =>
    h("tr", { class: differs && "differs" }, h("th", { scope: "row" }, h("bdi", {}, name)), ...values.map((value) => h("td", {}, value ? h("bdi", {}, value) : NONE)));
  patchChildren(body, lines.length ? lines.map(row) : [h("tr", {}, h("td", { colspan: columns + 1, class: "muted" }, nothing))]);
}

/**
 * How each job went, and the latest value of each metric.
 *
 * @param {Job[]} jobs @param {MetricName[][]} metrics of each job @returns {Line[]}
 */
export function resultLines(jobs, metrics) {
  const line = (/** @type {string} */ name, /** @type {(job: Job) => string} */ text) => ({ name, values: jobs.map(text), differs: false });
  const names = [...new Set(metrics.flatMap((each) => each.map(({ name }) => name)))];
  const latest = (/** @type {string} */ name) => metrics.map((each) => metricText(each.find((metric) => metric.name === name)));
  return [
    line("step", (job) => outOf(job.step, job.steps)),
    line("time since start", (job) => (job.started_at ? duration(secondsBetween(job.started_at, job.ended_at)) : NONE)),
    line("speed", (job) => speed(job.steps_per_second)),
    line("attempts", (job) => count(job.attempt)),
    line("goodput", (job) => percent(job.goodput)),
    ...names.slice(0, MAX_METRICS).map((name) => ({ name, values: latest(name), differs: false })),
  ];
}

/** @param {MetricName | undefined} metric */
function metricText(metric) {
  if (metric === undefined) return "";
  return `${metric.value === null ? "not finite" : significant(metric.value)} at step ${count(metric.step)}`;
}
