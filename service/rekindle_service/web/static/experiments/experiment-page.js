/**
 * The page of one experiment: its table, its curves, and on which machine it was measured.
 *
 * @import { ExperimentPublic as Experiment } from "../shared/api-types.d.ts"
 * @typedef {import("../results/row-view.js").Dimension} Dimension
 */
import { sortMetrics } from "../charts/metric-store.js";
import { MultiJobCharts } from "../charts/multi-job-charts.js";
import { ResultCharts } from "../results/result-charts.js";
import { listen, bestValue, sortHeading, swatch } from "../results/row-parts.js";
import { RowView } from "../results/row-view.js";
import { valueText } from "../results/value-axis.js";
import { call, filterUrl, isNotFound, jobUrl } from "../shared/api.js";
import { ConfirmDialog } from "../shared/confirm-dialog.js";
import { byId, copyText, h, patchChildren, setText } from "../shared/dom.js";
import { bytes, count, localTime, NONE, counted, duration, significant } from "../shared/format.js";
import { badge, stateWord } from "../shared/job-state.js";
import { idInUrl, keepFresh, markReady, showGone } from "../shared/live-page.js";
import { ExperimentActions } from "./experiment-actions.js";

// --- The table of an experiment: a row for each combination of parameters, with links to its jobs.

/** More rows make the page slow; those that come first in the chosen order are shown. */
const MAX_ROWS = 500;
const TIME = "time";

/** The heading of a parameter: `--lr` for `--lr=`; `lr=` stays, since a metric may be named `lr`. @param {string} key */
const shownKey = (key) => (key.startsWith("-") ? key.replace(/=$/, "") : key);

/** The columns, whose values the charts show too. @param {Experiment} experiment @returns {Dimension[]} */
function dimensionsOf({ parameters, measures, rows, trials, best }) {
  const seconds = rows.map((row) => mean(row.trials.map((trial) => trials[trial].seconds)));
  return [
    ...parameters.map((key) => ({ name: shownKey(key), isResult: false, values: rows.map((row) => row.parameters[key]), best: [] })),
    ...measures.map((name, column) => ({ name, isResult: true, values: rows.map((row) => row.values[column]), best: best[column] })),
    { name: TIME, isResult: true, values: seconds, best: [] },
  ];
}

/** What each row is called. @param {Experiment} experiment */
function rowNames({ parameters, rows }) {
  const known = rows.map((row) => parameters.filter((key) => key in row.parameters));
  return rows.map((row, index) => known[index].map((key) => `${shownKey(key)} ${valueText(row.parameters[key])}`).join(", ") || `row ${index + 1}`);
}

/** @param {Experiment} experiment @param {Dimension[]} dimensions */
function showTable(experiment, dimensions) {
  const { parameters, measures, rows } = experiment;
  const corner = h("th", { scope: "col" }, h("span", { class: "hidden" }, "Colour"));
  const headings = [...parameters.map((key) => sortHeading(view, shownKey(key))), ...[...measures, TIME].map((name) => sortHeading(view, name, "value"))];
  patchChildren(byId("results-head"), [h("tr", {}, corner, ...headings, h("th", { scope: "col" }, "Jobs"))]);
  const order = view.order(dimensions, rows.length);
  patchChildren(byId("results-body"), order.slice(0, MAX_ROWS).map((row) => rowNode(experiment, dimensions, row)));
  const rest = order.length - MAX_ROWS;
  setText(byId("results-rest"), rest > 0 ? `… and ${counted(rest, "more row")}: sort by a column to see others.` : "");
}

/** Mark the row that the user points at. */
function restyleTable() {
  for (const row of byId("results-body").children) row.classList.toggle("highlighted", Number(row.getAttribute("data-row")) === view.highlighted);
}

/** @param {Experiment} experiment @param {Dimension[]} dimensions @param {number} index */
function rowNode({ parameters, measures, rows, trials }, dimensions, index) {
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
  const link = h("a", { href: jobUrl(trial.job), title: `job ${trial.number}${restarts}`, "data-focus": trial.job }, badge(stateWord(trial)));
  return trial.pruned ? h("span", { class: "pruned" }, link, " ", trial.pruned) : link;
}

/** @param {(number | null)[]} seconds @returns {number | null} */
function mean(seconds) {
  const known = seconds.filter((each) => each !== null);
  return known.length ? known.reduce((sum, each) => sum + each, 0) / known.length : null;
}

// --- The page.

/** The server reads every metric of every job for a refresh: not more often than this. */
const REFRESH_DELAY_MS = 1000;

const MAX_POINTS = 500;

const experimentId = idInUrl();
const view = new RowView(() => draw(), () => restyle());
const resultCharts = new ResultCharts(view);
const curves = new MultiJobCharts(view);
const actions = new ExperimentActions(byId("experiment-actions"), new ConfirmDialog(), (action) => (action === "delete" ? location.assign("/experiments") : refreshing.now()));
/** @type {Experiment | null} */
let experiment = null;

async function refresh() {
  try {
    experiment = await call("GET /experiments/{experiment_id}", { experiment_id: experimentId });
    show(experiment);
    draw();
    markReady();
    await showCurves(experiment);
  } catch (error) {
    if (!isNotFound(error)) throw error; // it may have been deleted between the two requests
    showGone("No experiment has this id, or it has been deleted.");
  }
}

/** @param {Experiment} experiment */
async function showCurves({ definition, goals, metrics, logged, rows, trials }) {
  await curves.show({
    names: [...new Set([...(definition.measure?.length ? metrics : []), ...sortMetrics([...logged])])],
    goal: (name) => goals[metrics.indexOf(name)] ?? null,
    rows: new Map(rows.flatMap((row, index) => row.trials.map((trial) => [trials[trial].job, index]))),
    read: async (name) => (await call("GET /experiments/{experiment_id}/curves", { experiment_id: experimentId, name, max_points: MAX_POINTS })).items,
  });
}

/** Everything that has rows. */
function draw() {
  if (!experiment) return;
  const dimensions = dimensionsOf(experiment);
  view.paint(dimensions, rowNames(experiment));
  showTable(experiment, dimensions);
  restyleTable();
  resultCharts.show(dimensions, experiment.rows.length);
  curves.draw();
}

/** The user points at another row. */
function restyle() {
  restyleTable();
  resultCharts.restyle();
  curves.draw();
}

/** @param {Experiment} experiment */
function show(experiment) {
  byId("run-again", HTMLAnchorElement).href = `/submit?experiment=${encodeURIComponent(experiment.id)}`;
  patchChildren(byId("experiment-actions"), actions.buttons(experiment));
  setText(byId("experiment-name"), experiment.name);
  setText(byId("experiment-number"), `#${experiment.number}`);
  setText(byId("experiment-title"), experiment.title);
  setText(byId("experiment-states"), Object.entries(experiment.states).map(([state, jobs]) => `${count(jobs)} ${state}`).join(", "));
  byId("job-list", HTMLAnchorElement).href = filterUrl(`experiment:${experiment.id}`);
  document.title = `${experiment.name} · ${experiment.over ? "finished" : "running"} · rekindle`;
  byId("winner").hidden = experiment.best_command === null;
  setText(byId("winner-text"), experiment.result.text);
  setText(byId("winner-command"), experiment.best_command ?? "");
  patchChildren(byId("experiment-notes"), experiment.notes.map((note) => h("li", {}, note)));
  patchChildren(byId("origin"), originOf(experiment).flatMap(([term, text]) => [h("dt", {}, term), h("dd", {}, h("bdi", {}, text))]));
}

/**
 * What it takes to judge the figures and to reproduce them.
 *
 * @param {Experiment} experiment @returns {[term: string, text: string][]}
 */
function originOf({ command, created_at, definition, machine }) {
  return [
    ["Command", command ?? `rekindle experiment --file, with ${JSON.stringify(definition, withoutUnset)}`],
    ["Started", localTime(created_at)],
    ["Machine", [machine.host, machine.processor, `${machine.cores} cores`, bytes(machine.memory), ...(machine.gpus ?? [])].join(", ")],
    ["Software", `${machine.system}, Python ${machine.python}, torch ${machine.torch}, rekindle ${machine.rekindle}`],
    ["Load", `${machine.load} runnable processes at the start`],
    ["Jobs", definition.sequential ? "one at a time" : `in parallel, ${definition.parallel ? `at most ${definition.parallel} at a time` : "limited by the free slots"}`],
  ];
}

/** For a text of JSON without what has its default. @param {string} _ @param {unknown} value */
const withoutUnset = (_, value) => (value === null || value === false || value === "" || (Array.isArray(value) && !value.length) ? undefined : value);

const refreshing = keepFresh(refresh, REFRESH_DELAY_MS, (event, data) => event === "deleted" || (event === "job" && data.experiment_id === experimentId));
listen(byId("results"), view);
byId("winner-copy").addEventListener("click", () => void copyText(byId("winner-command").textContent ?? "", byId("winner-copied")));
addEventListener("popstate", () => view.read());
