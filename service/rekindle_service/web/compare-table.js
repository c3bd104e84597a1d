/** The table that lays jobs side by side: a column for each job, a line for each thing in which they differ. */
import { badge, stateWord } from "./badge.js";
import { CURVE_COLOURS, figure } from "./comparison.js";
import { h, redraw } from "./dom.js";
import { NONE, count, duration, outOf, percent, secondsBetween, speed } from "./format.js";

/** With more metrics than this, the others are in the charts alone. */
const MOST_METRICS = 30;

/**
 * @typedef {import("./api.js").Job} Job
 * @typedef {import("./parameters.js").Line} Line
 * @typedef {import("./job-api.js").MetricName} MetricName
 */

/**
 * @param {HTMLElement} head
 * @param {Job[]} jobs
 * @param {(id: string) => void} remove
 */
export function showJobs(head, jobs, remove) {
  redraw(head, [
    h(
      "tr",
      {},
      h("th", { scope: "col" }, h("span", { class: "hidden" }, "What")),
      ...jobs.map((job, index) =>
        h(
          "th",
          { scope: "col" },
          h("span", { class: "swatch", "data-curve": index % CURVE_COLOURS }),
          " ",
          h("a", { href: `/jobs/${encodeURIComponent(job.id)}`, title: job.name, "data-focus": `job-${job.id}` }, h("bdi", {}, job.name)),
          h("span", { class: "compared" }, `#${job.number} `, badge(stateWord(job)), h("button", { type: "button", class: "quiet", "aria-label": `Take ${job.name} out of the comparison`, "data-focus": `remove-${job.id}`, onclick: () => remove(job.id) }, "Remove")),
        ),
      ),
    ),
  ]);
}

/**
 * @param {HTMLElement} body
 * @param {Line[]} lines
 * @param {number} columns
 */
export function showLines(body, lines, columns) {
  const nothing = h("tr", {}, h("td", { colspan: columns + 1, class: "muted" }, columns > 1 ? "They were given the same." : "A second job is needed to compare with."));
  redraw(body, lines.length ? lines.map(line) : [nothing]);
}

/** @param {Line} line */
function line({ name, values, differs }) {
  return h("tr", { class: differs ? "differs" : null }, h("th", { scope: "row" }, h("bdi", {}, name)), ...values.map((value) => h("td", {}, value ? h("bdi", {}, value) : NONE)));
}

/**
 * How each of them went, and the last value of each metric.
 *
 * @param {Job[]} jobs
 * @param {MetricName[][]} metrics of each job
 * @returns {Line[]}
 */
export function resultLines(jobs, metrics) {
  const told = (/** @type {string} */ name, /** @type {(job: Job) => string} */ value) => ({ name, values: jobs.map(value), differs: false });
  const names = [...new Set(metrics.flatMap((each) => each.map(({ name }) => name)))];
  const last = (/** @type {MetricName[]} */ known, /** @type {string} */ name) => known.find((each) => each.name === name);
  return [
    told("step", (job) => outOf(job.step, job.steps)),
    told("time since its start", (job) => (job.started_at ? duration(secondsBetween(job.started_at, job.ended_at)) : NONE)),
    told("speed", (job) => speed(job.steps_per_second)),
    told("attempts", (job) => count(job.attempt)),
    told("goodput", (job) => percent(job.goodput)),
    ...names.slice(0, MOST_METRICS).map((name) => ({ name, values: metrics.map((known) => valueText(last(known, name))), differs: false })),
  ];
}

/** @param {MetricName | undefined} metric */
function valueText(metric) {
  if (metric === undefined) return "";
  return `${metric.value === null ? "not finite" : figure(metric.value)} at step ${count(metric.step)}`;
}
