/** The list of experiments. */
import { listExperiments } from "./api.js";
import { badge } from "./badge.js";
import { byId, h, redraw } from "./dom.js";
import { localTime } from "./format.js";
import { Refreshing } from "./refreshing.js";
import { Stream } from "./stream.js";

const PAGE = 50;
/** Many events in a row (an experiment's jobs) lead to one fetch. */
const SETTLE_MS = 500;

/** @type {string | null} */
let next = null;

const cursor = () => new URLSearchParams(location.search).get("cursor");

async function show() {
  const asked = cursor();
  const answer = await listExperiments({ limit: PAGE, cursor: asked });
  if (asked !== cursor()) return; // of another page by now
  next = answer.next;
  const none = answer.items.length === 0;
  byId("experiment-table").hidden = none;
  byId("nothing-yet").hidden = !none;
  byId("pager").hidden = !cursor() && !next;
  /** @type {HTMLButtonElement} */ (byId("older")).disabled = !next;
  /** @type {HTMLButtonElement} */ (byId("newest")).disabled = !cursor();
  redraw(byId("experiments"), answer.items.map(row));
  byId("main").setAttribute("aria-busy", "false");
}

/** @param {import("./api.js").Summary} experiment */
function row(experiment) {
  const link = h("a", { href: `/experiments/${encodeURIComponent(experiment.id)}`, "data-focus": `experiment-${experiment.id}` }, h("bdi", {}, experiment.name));
  const states = Object.entries(experiment.states).map(([word, count]) => h("span", {}, `${count} `, badge(word)));
  return h(
    "tr",
    {},
    h("td", { class: "number minor" }, String(experiment.number)),
    h("th", { scope: "row" }, link),
    h("td", { class: "minor" }, h("bdi", {}, experiment.title)),
    h("td", {}, h("span", { class: "jobs-of" }, ...states)),
    h("td", {}, h("a", { href: `/?experiment=${encodeURIComponent(experiment.id)}`, "data-focus": `jobs-${experiment.id}` }, `${experiment.jobs} jobs`)),
    h("td", { class: "muted minor" }, h("time", { datetime: experiment.created_at }, localTime(experiment.created_at))),
  );
}

const refreshing = new Refreshing(() => show().catch((error) => console.warn("the experiments could not be read", error)), SETTLE_MS);

/** @param {string | null} to */
function turn(to) {
  history.pushState(null, "", to ? `/experiments?cursor=${encodeURIComponent(to)}` : "/experiments");
  refreshing.now();
}

byId("older").addEventListener("click", () => turn(next));
byId("newest").addEventListener("click", () => turn(null));
addEventListener("popstate", () => refreshing.now());

/**
 * @param {string} event
 * @param {any} data
 */
const hear = (event, data) => (event === "deleted" || (event === "job" && data.experiment_id)) && refreshing.soon();

new Stream({ job: null, log: null }, { live: () => refreshing.now(), event: hear });
