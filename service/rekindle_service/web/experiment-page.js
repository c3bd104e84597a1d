/** The page of one experiment: its table, its curves, and what was measured on which machine. */
import { Problem, listCurves, readExperiment } from "./api.js";
import { showComparison, spoken } from "./comparison.js";
import { byId, h, redraw, setText } from "./dom.js";
import { bytes, localTime } from "./format.js";
import { Overlay } from "./overlay.js";
import { Refreshing } from "./refreshing.js";
import { Stream } from "./stream.js";

/** Reading every metric of every job is work for the server: not more often than this. */
const SETTLE_MS = 1000;

const experimentId = decodeURIComponent(location.pathname.split("/").at(-1) ?? "");
const overlay = new Overlay();
const refreshing = new Refreshing(refresh, SETTLE_MS);

async function refresh() {
  try {
    const experiment = await readExperiment(experimentId);
    show(experiment);
    byId("experiment").setAttribute("aria-busy", "false");
    const curves = await listCurves(experimentId);
    await overlay.show({
      names: [...new Set(curves.map(({ name }) => name))],
      rows: new Map(experiment.rows.flatMap((row, index) => row.cells.map((cell) => [experiment.cells[cell].job, index]))),
      read: async (names) => curves.filter(({ name }) => names.includes(name)),
    });
  } catch (error) {
    if (error instanceof Problem && error.status === 404) gone("There is no such experiment.");
    else console.warn("the experiment could not be read", error);
  }
}

/** @param {import("./api.js").Experiment} experiment */
function show(experiment) {
  setText(byId("experiment-name"), experiment.name);
  setText(byId("experiment-number"), `#${experiment.number}`);
  setText(byId("experiment-title"), experiment.title);
  setText(byId("experiment-states"), Object.entries(experiment.states).map(([word, count]) => `${count} ${word}`).join(", "));
  byId("job-list").setAttribute("href", `/?experiment=${encodeURIComponent(experiment.id)}`);
  document.title = `${experiment.name} · ${experiment.over ? "over" : "running"} · rekindle`;
  showComparison(byId("results-head"), byId("results-body"), experiment);
  redraw(byId("experiment-notes"), experiment.notes.map((note) => h("li", {}, note)));
  const origin = originOf(experiment).flatMap(([term, text]) => [h("dt", {}, term), h("dd", {}, h("bdi", {}, text))]);
  redraw(byId("origin"), origin);
}

/**
 * What somebody needs to judge the figures, and to measure them again.
 *
 * @param {import("./api.js").Experiment} experiment
 * @returns {[term: string, text: string][]}
 */
function originOf({ command, created_at, definition, machine }) {
  return [
    ["Command", command ?? `rekindle experiment --file, with ${JSON.stringify(definition)}`],
    ["Started", localTime(created_at)],
    ["Machine", [machine.host, machine.processor, `${machine.cores} cores`, bytes(machine.memory), ...(machine.gpus ?? [])].map(spoken).join(", ")],
    ["Software", `${machine.system}, Python ${machine.python}, torch ${machine.torch}, rekindle ${machine.rekindle}`],
    ["Load", `${machine.load} processes wanted to run when it began`],
    ["Jobs", definition.one_at_a_time ? "one at a time" : "side by side, as far as there were slots"],
  ];
}

/**
 * @param {string} event
 * @param {any} data
 */
function hear(event, data) {
  if (event === "deleted" || (event === "job" && data.experiment_id === experimentId)) refreshing.soon();
}

/** @param {string} sentence */
function gone(sentence) {
  byId("experiment").hidden = true;
  byId("gone").hidden = false;
  setText(byId("gone-sentence"), sentence);
}

new Stream({ job: null, log: null }, { live: () => refreshing.now(), event: hear });
