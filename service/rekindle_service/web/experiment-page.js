/** The page of one experiment: its table, its curves, and what was measured on which machine. */
import { Problem, listCurves, readExperiment } from "./api.js";
import { showComparison, spoken } from "./comparison.js";
import { byId, h, setText } from "./dom.js";
import { bytes, localTime } from "./format.js";
import { Overlay } from "./overlay.js";
import { Stream } from "./stream.js";

/** Reading every metric of every job is work for the server: not more often than this. */
const SETTLE_MS = 1000;

const experimentId = decodeURIComponent(location.pathname.split("/").at(-1) ?? "");
const overlay = new Overlay();

/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

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
    if (error instanceof Problem && error.status === 404) gone(error.message);
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
  byId("experiment-notes").replaceChildren(...experiment.notes.map((note) => h("li", {}, note)));
  const origin = originOf(experiment).flatMap(([term, text]) => [h("dt", {}, term), h("dd", {}, h("bdi", {}, text))]);
  byId("origin").replaceChildren(...origin);
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
  if (event === "deleted" || (event === "job" && data.experiment_id === experimentId)) settle();
}

/** Many events in a row lead to one fetch. */
function settle() {
  timer ??= setTimeout(() => {
    timer = undefined;
    void refresh();
  }, SETTLE_MS);
}

/** @param {string} sentence */
function gone(sentence) {
  byId("experiment").hidden = true;
  byId("gone").hidden = false;
  setText(byId("gone-sentence"), sentence);
}

new Stream({ job: null, log: null }, { live: () => void refresh(), event: hear });
