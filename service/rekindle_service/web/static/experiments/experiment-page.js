/**
 * The page of one experiment: its table, its curves, and on which machine it was measured.
 *
 * @import { ExperimentPublic as Experiment } from "../shared/api-types.d.ts"
 */
import { sortMetrics } from "../charts/metric-store.js";
import { MultiJobCharts } from "../charts/multi-job-charts.js";
import { ResultCharts } from "../results/result-charts.js";
import { RowView } from "../results/row-view.js";
import { listen } from "../results/row-parts.js";
import { call, isNotFound } from "../shared/api.js";
import { ConfirmDialog } from "../shared/confirm-dialog.js";
import { byId, h, patchChildren, setText } from "../shared/dom.js";
import { bytes, count, localTime } from "../shared/format.js";
import "../shared/layout.js";
import { idInUrl, keepFresh, markReady, showGone } from "../shared/live-page.js";
import { ExperimentActions } from "./experiment-actions.js";
import { dimensionsOf, restyleTable, rowNames, showTable } from "./experiment-table.js";

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
async function showCurves({ definition, metrics, logged, rows, trials }) {
  await curves.show({
    names: [...new Set([...(definition.measure?.length ? metrics : []), ...sortMetrics([...logged])])],
    rows: new Map(rows.flatMap((row, index) => row.trials.map((trial) => [trials[trial].job, index]))),
    read: async (name) => (await call("GET /experiments/{experiment_id}/curves", { experiment_id: experimentId, name, max_points: MAX_POINTS })).items,
  });
}

/** Everything that has rows. */
function draw() {
  if (!experiment) return;
  const dimensions = dimensionsOf(experiment);
  view.paint(dimensions, rowNames(experiment));
  showTable(experiment, dimensions, view);
  restyleTable(view);
  resultCharts.show(dimensions, experiment.rows.length);
  curves.draw();
}

/** The user points at another row. */
function restyle() {
  restyleTable(view);
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
  byId("job-list", HTMLAnchorElement).href = `/?experiment=${encodeURIComponent(experiment.id)}`;
  document.title = `${experiment.name} · ${experiment.over ? "finished" : "running"} · rekindle`;
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
addEventListener("popstate", () => view.read());
