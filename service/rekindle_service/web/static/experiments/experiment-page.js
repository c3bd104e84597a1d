/**
 * The page of one experiment: its table, its curves, and on which machine it was measured.
 *
 * @import { ExperimentPublic as Experiment } from "../shared/api-types.d.ts"
 */
import { MultiJobCharts } from "../charts/multi-job-charts.js";
import { call, isNotFound } from "../shared/api.js";
import { byId, h, patchChildren, setText } from "../shared/dom.js";
import { bytes, localTime } from "../shared/format.js";
import { idInUrl, keepFresh, markReady, showGone } from "../shared/live-page.js";
import { showTable } from "./experiment-table.js";

/** The server reads every metric of every job for a refresh: not more often than this. */
const REFRESH_DELAY_MS = 1000;

const experimentId = idInUrl();
const charts = new MultiJobCharts();

async function refresh() {
  try {
    const experiment = await call("GET /experiments/{experiment_id}", { experiment_id: experimentId });
    show(experiment);
    markReady();
    const { items: curves } = await call("GET /experiments/{experiment_id}/curves", { experiment_id: experimentId });
    await charts.show({
      names: [...new Set(curves.map(({ name }) => name))],
      rows: new Map(experiment.rows.flatMap((row, index) => row.trials.map((trial) => [experiment.trials[trial].job, index]))),
      read: async (names) => curves.filter(({ name }) => names.includes(name)),
    });
  } catch (error) {
    if (!isNotFound(error)) throw error;
    showGone("There is no such experiment.");
  }
}

/** @param {Experiment} experiment */
function show(experiment) {
  setText(byId("experiment-name"), experiment.name);
  setText(byId("experiment-number"), `#${experiment.number}`);
  setText(byId("experiment-title"), experiment.title);
  setText(byId("experiment-states"), Object.entries(experiment.states).map(([state, count]) => `${count} ${state}`).join(", "));
  byId("job-list", HTMLAnchorElement).href = `/?experiment=${encodeURIComponent(experiment.id)}`;
  document.title = `${experiment.name} · ${experiment.over ? "finished" : "running"} · rekindle`;
  showTable(experiment);
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
    ["Command", command ?? `rekindle experiment --file, with ${JSON.stringify(definition)}`],
    ["Started", localTime(created_at)],
    ["Machine", [machine.host, machine.processor, `${machine.cores} cores`, bytes(machine.memory), ...(machine.gpus ?? [])].join(", ")],
    ["Software", `${machine.system}, Python ${machine.python}, torch ${machine.torch}, rekindle ${machine.rekindle}`],
    ["Load", `${machine.load} runnable processes at the start`],
    ["Jobs", definition.sequential ? "one at a time" : "in parallel, as far as there were slots"],
  ];
}

keepFresh(refresh, REFRESH_DELAY_MS, (event, data) => event === "deleted" || (event === "job" && data.experiment_id === experimentId));
