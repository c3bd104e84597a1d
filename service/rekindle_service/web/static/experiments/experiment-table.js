/**
 * The table of an experiment: a row for each combination of parameters, with links to its jobs.
 *
 * @import { ExperimentPublic as Experiment } from "../shared/api-types.d.ts"
 * @typedef {import("../results/row-view.js").Dimension} Dimension
 * @typedef {import("../results/row-view.js").RowView} RowView
 */
import { bestValue, sortHeading, swatch } from "../results/row-parts.js";
import { valueText } from "../results/value-axis.js";
import { jobUrl } from "../shared/api.js";
import { byId, h, patchChildren, setText } from "../shared/dom.js";
import { NONE, counted, duration, significant } from "../shared/format.js";
import { badge, stateWord } from "../shared/job-state.js";

/** More rows make the page slow; those that come first in the chosen order are shown. */
const MAX_ROWS = 500;
const TIME = "time";

/** The columns, whose values the charts show too. @param {Experiment} experiment @returns {Dimension[]} */
export function dimensionsOf({ parameters, measures, rows, trials, best }) {
  const seconds = rows.map((row) => mean(row.trials.map((trial) => trials[trial].seconds)));
  return [
    ...parameters.map((name) => ({ name, isResult: false, values: rows.map((row) => row.parameters[name]), best: [] })),
    ...measures.map((name, column) => ({ name, isResult: true, values: rows.map((row) => row.values[column]), best: best[column] })),
    { name: TIME, isResult: true, values: seconds, best: [] },
  ];
}

/** What each row is called. @param {Experiment} experiment */
export function rowNames({ parameters, rows }) {
  const known = rows.map((row) => parameters.filter((key) => key in row.parameters));
  return rows.map((row, index) => known[index].map((key) => `${key} ${valueText(row.parameters[key])}`).join(", ") || `row ${index + 1}`);
}

/** @param {Experiment} experiment @param {Dimension[]} dimensions @param {RowView} view */
export function showTable(experiment, dimensions, view) {
  const { parameters, measures, rows } = experiment;
  const corner = h("th", { scope: "col" }, h("span", { class: "hidden" }, "Colour"));
  const headings = [...parameters.map((name) => sortHeading(view, name)), ...[...measures, TIME].map((name) => sortHeading(view, name, "value"))];
  patchChildren(byId("results-head"), [h("tr", {}, corner, ...headings, h("th", { scope: "col" }, "Jobs"))]);
  const order = view.order(dimensions, rows.length);
  patchChildren(byId("results-body"), order.slice(0, MAX_ROWS).map((row) => rowNode(experiment, dimensions, row, view)));
  const rest = order.length - MAX_ROWS;
  setText(byId("results-rest"), rest > 0 ? `… and ${counted(rest, "more row")}: sort by a column to see others.` : "");
}

/** Mark the row that the user points at. @param {RowView} view */
export function restyleTable(view) {
  for (const row of byId("results-body").children) row.classList.toggle("highlighted", Number(row.getAttribute("data-row")) === view.highlighted);
}

/** @param {Experiment} experiment @param {Dimension[]} dimensions @param {number} index @param {RowView} view */
function rowNode({ parameters, measures, rows, trials }, dimensions, index, view) {
  const row = rows[index];
  const results = dimensions.slice(parameters.length, parameters.length + measures.length);
  return h(
    "tr",
    { "data-row": index, class: view.look(index).isHidden && "row-hidden" },
    h("td", {}, swatch(view, index)),
    ...parameters.map((key) => h("td", {}, h("bdi", {}, valueText(row.parameters[key])))),
    ...results.map(({ best }, column) => valueCell(row.values[column], row.spread[column], best.includes(index))),
    h("td", { class: "value" }, duration(/** @type {number | null} */ (dimensions[dimensions.length - 1].values[index]))),
    h("td", {}, h("span", { class: "jobs-of" }, ...row.trials.map((trial) => jobLink(trials[trial])))),
  );
}

/** @param {number | null} value @param {[number, number] | null} spread @param {boolean} isBest */
function valueCell(value, spread, isBest) {
  const range = spread && h("span", { class: "spread" }, ` ${significant(spread[0])} to ${significant(spread[1])}`);
  const text = value === null ? NONE : significant(value);
  return h("td", { class: "value" }, isBest ? bestValue(text) : text, range);
}

/** @param {Experiment["trials"][number]} trial */
function jobLink(trial) {
  const restarts = trial.restarts ? `, ${counted(trial.restarts, "restart")}` : "";
  return h("a", { href: jobUrl(trial.job), title: `job ${trial.number}${restarts}`, "data-focus": trial.job }, badge(stateWord(trial)));
}

/** @param {(number | null)[]} seconds @returns {number | null} */
function mean(seconds) {
  const known = seconds.filter((each) => each !== null);
  return known.length ? known.reduce((sum, each) => sum + each, 0) / known.length : null;
}
