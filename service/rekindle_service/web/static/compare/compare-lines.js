/**
 * The lines of a comparison: parameters and results of jobs, as text for the table and as values for sorting and charts.
 * Pure.
 *
 * @import { AttemptPublic as Attempt, ConfigurationPublic as Configuration, JobPublic as Job, MetricName } from "../shared/api-types.d.ts"
 * @typedef {{job: Job, configuration: Configuration, metrics: MetricName[], attempts: Attempt[]}} Compared
 * @typedef {import("../results/row-view.js").Dimension & {texts: string[], differs: boolean}} ComparedLine
 */
import { bestRows } from "../results/row-view.js";
import { NONE, count, duration, outOf, percent, secondsBetween, significant, speed } from "../shared/format.js";
import { compareParameters, parametersOf } from "../shared/job-parameters.js";

/** Further metrics are in the charts alone. */
const MAX_METRICS = 30;

/** @param {Compared[]} compared @returns {ComparedLine[]} */
export function parameterLines(compared) {
  const lines = compareParameters(compared.map(({ job, configuration }) => parametersOf(job, configuration)));
  return lines.map(({ name, values, differs }) => ({ name, isResult: false, values: values.map((value) => value || null), best: [], texts: values, differs }));
}

/** How each job went, and the latest value of each metric. @param {Compared[]} compared @returns {ComparedLine[]} */
export function resultLines(compared) {
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
export const metricNames = (compared) => [...new Set(compared.flatMap(({ metrics }) => metrics.map(({ name }) => name)))];

/** @param {Compared[]} compared @param {string} name @returns {ComparedLine} */
function metricLine(compared, name) {
  const latest = compared.map(({ metrics }) => metrics.find((metric) => metric.name === name));
  const values = latest.map((metric) => metric?.value ?? null);
  const goal = latest.find((metric) => metric !== undefined)?.goal ?? null;
  return { name, isResult: true, values, best: bestRows(values, goal), texts: latest.map(metricText), differs: false };
}

/** @param {MetricName | undefined} metric */
function metricText(metric) {
  if (metric === undefined) return "";
  return `${metric.value === null ? "not finite" : significant(metric.value)} at step ${count(metric.step)}`;
}
