/**
 * The table of an experiment: a row for each combination of parameters, with links to its jobs.
 *
 * @import { ExperimentPublic as Experiment } from "../shared/api-types.d.ts"
 */
import { swatch } from "../charts/multi-job-charts.js";
import { jobUrl } from "../shared/api.js";
import { byId, h, patchChildren } from "../shared/dom.js";
import { NONE, significant } from "../shared/format.js";
import { badge, stateWord } from "../shared/job-state.js";

/** @param {Experiment} experiment */
export function showTable({ parameters, measures, rows, trials }) {
  const heading = (/** @type {string} */ name, /** @type {string | null} */ style) => h("th", { scope: "col", class: style }, h("bdi", {}, name));
  patchChildren(byId("results-head"), [
    h(
      "tr",
      {},
      h("th", { scope: "col" }, h("span", { class: "hidden" }, "Colour")),
      ...parameters.map((name) => heading(name, null)),
      ...measures.map((name) => heading(name, "value")),
      h("th", { scope: "col" }, "Jobs"),
    ),
  ]);
  patchChildren(
    byId("results-body"),
    rows.map((row, index) =>
      h(
        "tr",
        {},
        h("td", {}, swatch(index, rows.length)),
        ...parameters.map((name) => h("td", {}, h("bdi", {}, name in row.parameters ? formatValue(row.parameters[name]) : ""))),
        ...row.values.map((value, column) => valueCell(value, row.spread[column])),
        h("td", {}, h("span", { class: "jobs-of" }, ...row.trials.map((trial) => jobLink(trials[trial])))),
      ),
    ),
  );
}

/** @param {number | null} value @param {[number, number] | null} spread */
function valueCell(value, spread) {
  const range = spread && h("span", { class: "spread" }, ` ${significant(spread[0])} to ${significant(spread[1])}`);
  return h("td", { class: "value" }, value === null ? NONE : significant(value), range);
}

/** @param {Experiment["trials"][number]} trial */
function jobLink(trial) {
  return h("a", { href: jobUrl(trial.job), title: `job ${trial.number}`, "data-focus": trial.job }, badge(stateWord(trial)));
}

/** @param {string | number | boolean | null} value */
const formatValue = (value) => (value === true ? "yes" : value === false ? "no" : value === null ? "not set" : String(value));
