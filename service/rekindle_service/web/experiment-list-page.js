/** The list of experiments. */
import { listExperiments } from "./api.js";
import { badge } from "./badge.js";
import { byId, h } from "./dom.js";
import { localTime } from "./format.js";
import { Stream } from "./stream.js";

const PAGE = 50;
/** Many events in a row (an experiment's jobs) lead to one fetch. */
const SETTLE_MS = 500;

/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
/** @type {string | null} */
let next = null;

const cursor = () => new URLSearchParams(location.search).get("cursor");

async function show() {
  const answer = await listExperiments({ limit: PAGE, cursor: cursor() });
  next = answer.next;
  const none = answer.items.length === 0;
  byId("experiment-table").hidden = none;
  byId("nothing-yet").hidden = !none;
  byId("pager").hidden = !cursor() && !next;
  /** @type {HTMLButtonElement} */ (byId("older")).disabled = !next;
  /** @type {HTMLButtonElement} */ (byId("newest")).disabled = !cursor();
  byId("experiments").replaceChildren(...answer.items.map(row));
  byId("main").setAttribute("aria-busy", "false");
}

/** @param {import("./api.js").Summary} experiment */
function row(experiment) {
  const link = h("a", { href: `/experiments/${encodeURIComponent(experiment.id)}` }, h("bdi", {}, experiment.name));
  const states = Object.entries(experiment.states).map(([word, count]) => h("span", {}, `${count} `, badge(word)));
  return h(
    "tr",
    {},
    h("td", { class: "number minor" }, String(experiment.number)),
    h("th", { scope: "row" }, link),
    h("td", { class: "minor" }, h("bdi", {}, experiment.title)),
    h("td", {}, h("span", { class: "jobs-of" }, ...states)),
    h("td", {}, h("a", { href: `/?experiment=${encodeURIComponent(experiment.id)}` }, `${experiment.jobs} jobs`)),
    h("td", { class: "muted minor" }, h("time", { datetime: experiment.created_at }, localTime(experiment.created_at))),
  );
}

function refresh() {
  timer ??= setTimeout(() => {
    timer = undefined;
    show().catch((error) => console.warn("the experiments could not be read", error));
  }, SETTLE_MS);
}

/** @param {string | null} to */
function turn(to) {
  history.pushState(null, "", to ? `/experiments?cursor=${encodeURIComponent(to)}` : "/experiments");
  refresh();
}

byId("older").addEventListener("click", () => turn(next));
byId("newest").addEventListener("click", () => turn(null));
addEventListener("popstate", refresh);

/**
 * @param {string} event
 * @param {any} data
 */
const hear = (event, data) => (event === "deleted" || (event === "job" && data.experiment_id)) && refresh();

new Stream({ job: null, log: null }, { live: refresh, event: hear });
