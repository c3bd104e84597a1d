/**
 * The list of experiments.
 *
 * @import { BuiltIn, ExperimentSummary } from "../shared/api-types.d.ts"
 */
import { call, experimentUrl, filterUrl, warn } from "../shared/api.js";
import { ConfirmDialog, field } from "../shared/confirm-dialog.js";
import { byId, h, patchChildren } from "../shared/dom.js";
import { count, counted, localTime } from "../shared/format.js";
import { badge } from "../shared/job-state.js";
import { keepFresh, markReady } from "../shared/live-page.js";
import { split } from "../shared/shell-words.js";
import { ExperimentActions } from "./experiment-actions.js";

const PAGE_SIZE = 50;
const REFRESH_DELAY_MS = 500;

/** @type {string | null} cursor of the next page */
let next = null;

const dialog = new ConfirmDialog();
const actions = new ExperimentActions(byId("experiments"), dialog, () => refreshing.now());

const cursor = () => new URLSearchParams(location.search).get("cursor");

async function show() {
  const shown = cursor();
  const answer = await call("GET /experiments", { limit: PAGE_SIZE, cursor: shown });
  if (shown !== cursor()) return; // the page has been turned meanwhile
  next = answer.next;
  const none = answer.items.length === 0;
  byId("experiment-table").hidden = none;
  byId("nothing-yet").hidden = !none;
  byId("pager").hidden = !shown && !next;
  byId("older", HTMLButtonElement).disabled = !next;
  byId("latest", HTMLButtonElement).disabled = !shown;
  patchChildren(byId("experiments"), answer.items.map(row));
  markReady();
}

/** @param {ExperimentSummary} experiment */
function row(experiment) {
  const { id, number, name, title, states, jobs, created_at: createdAt } = experiment;
  return h(
    "tr",
    {},
    h("td", { class: "number minor" }, String(number)),
    h("th", { scope: "row" }, h("a", { href: experimentUrl(id), "data-focus": `experiment-${id}` }, h("bdi", {}, name))),
    h("td", { class: "minor" }, h("bdi", {}, title)),
    h("td", {}, h("span", { class: "jobs-of" }, ...Object.entries(states).map(([state, jobs]) => h("span", {}, `${count(jobs)} `, badge(state))))),
    h("td", { class: "minor" }, h("a", { href: filterUrl(`experiment:${id}`), "data-focus": `jobs-${id}` }, counted(jobs, "job"))),
    h("td", { class: "muted minor" }, h("time", { datetime: createdAt }, localTime(createdAt))),
    h("td", {}, h("span", { class: "actions" }, ...actions.buttons(experiment))),
  );
}

const refreshing = keepFresh(show, REFRESH_DELAY_MS, (event, data) => event === "deleted" || (event === "job" && Boolean(data.experiment_id)));

/** @param {string | null} to cursor */
function turnPage(to) {
  history.pushState(null, "", to ? `/experiments?cursor=${encodeURIComponent(to)}` : "/experiments");
  refreshing.now();
}

byId("older").addEventListener("click", () => turnPage(next));
byId("latest").addEventListener("click", () => turnPage(null));
showBuiltIns().catch(warn("the built-in experiments"));

// --- builtin list: The built-in experiments, each with a button that starts it.

async function showBuiltIns() {
  const { items } = await call("GET /experiments/builtin");
  const names = [...new Set(items.map(({ name }) => name))];
  byId("builtin-list").replaceChildren(...names.map((name) => item(items.filter((each) => each.name === name))));
  byId("builtins").hidden = false;
}

/** @param {BuiltIn[]} sizes of one experiment */
function item(sizes) {
  const [{ name, title }] = sizes;
  const start = h("button", { type: "button", "data-needs": "submit", "aria-label": `Start ${name}`, onclick: () => confirm(sizes) }, "Start");
  return h("li", {}, start, h("strong", {}, name), h("span", { class: "muted" }, title));
}

/** @param {BuiltIn[]} sizes */
function confirm(sizes) {
  const [{ name, title }] = sizes;
  const size = h("select", {}, ...sizes.map((each) => new Option(`${each.size}: ${counted(each.jobs, "job")}`, each.size)));
  const args = h("input", { autocomplete: "off", spellcheck: "false", placeholder: "--epochs 20" });
  dialog.open({
    title: `Start ${name}?`,
    jobs: [],
    consequence: `${title}. The size full is for GPUs and needs CIFAR-10: --data-dir DIRECTORY. Arguments are added to those of every job.`,
    fields: [field("Size", "size", size), field("Arguments", "args", args)],
    yes: "Start",
    run: async (chosen) => {
      const body = { builtin: name, size: /** @type {"small" | "full"} */ (chosen.get("size")), args: split(String(chosen.get("args"))) };
      location.assign(experimentUrl((await call("POST /experiments", {}, body)).id));
    },
  });
}
