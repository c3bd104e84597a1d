/** The list of jobs: totals, slots, experiments, filters, live rows, and what can be done to many at once. */
import { listDevices, listExperiments, listJobs, readSummary } from "./api.js";
import { Bulk } from "./bulk.js";
import { DeviceStrip } from "./device-strip.js";
import { byId, h, redraw, setText } from "./dom.js";
import { percent } from "./format.js";
import { JobTable } from "./job-table.js";
import { newest } from "./newest.js";
import { QueueFilters } from "./queue-filters.js";
import { Stream } from "./stream.js";

const PAGE = 50;
const NEWEST_EXPERIMENTS = 5;
const OFFERED_EXPERIMENTS = 20;
/** Many events in a row (a hundred submitted jobs) lead to one fetch. */
const SETTLE_MS = 250;

const filters = new QueueFilters(refresh);
const bulk = new Bulk(refresh);
const table = new JobTable(byId("jobs"), /** @type {HTMLInputElement} */ (byId("choose-all")), (chosen) => bulk.show(chosen));
const strip = new DeviceStrip(byId("slots"));

/** @type {string | null} */
let next = null;
/** @type {Map<string, string>} last known state of each job heard of */
const states = new Map();
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
let newestAsked = 0;

async function showPage() {
  const asked = ++newestAsked;
  const answer = await listJobs({ ...filters.query, limit: PAGE });
  if (asked !== newestAsked) return; // of another filter by now
  next = answer.next;
  answer.items.forEach((job) => states.set(job.id, job.state));
  table.show(answer.items);
  const none = answer.items.length === 0;
  byId("job-table").hidden = none;
  byId("nothing-yet").hidden = !none || filters.isNarrow;
  byId("nothing-found").hidden = !none || !filters.isNarrow;
  byId("pager").hidden = filters.isFirstPage && !next;
  /** @type {HTMLButtonElement} */ (byId("newer")).disabled = filters.isFirstPage;
  /** @type {HTMLButtonElement} */ (byId("older")).disabled = !next;
  byId("queue").setAttribute("aria-busy", "false");
}

const showTotals = newest(() => Promise.all([listDevices(), readSummary()]), ([devices, { jobs, slots, goodput }]) => {
  strip.show(devices.items, devices.links);
  setText(byId("total-running"), String(jobs.starting + jobs.running + jobs.recovering));
  setText(byId("total-waiting"), String(jobs.queued));
  setText(byId("total-slots"), `${slots.held} / ${slots.total}`);
  setText(byId("total-goodput"), percent(goodput));
});

const showExperiments = newest(() => listExperiments({ limit: OFFERED_EXPERIMENTS }), ({ items }) => {
  filters.offer(items);
  byId("experiments").hidden = items.length === 0;
  byId("experiment-filter").hidden = items.length === 0;
  redraw(
    byId("experiment-links"),
    items.slice(0, NEWEST_EXPERIMENTS).map((one) => {
      const done = one.jobs - ["queued", "starting", "running", "recovering"].reduce((sum, word) => sum + (one.states[word] ?? 0), 0);
      const link = h("a", { href: `/experiments/${encodeURIComponent(one.id)}`, title: one.title, "data-focus": one.id }, h("bdi", {}, one.name));
      return h("li", {}, link, h("span", { class: "muted" }, one.over ? `${one.jobs} jobs` : `${done} of ${one.jobs}`));
    }),
  );
});

function refresh() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    Promise.all([showPage(), showTotals(), showExperiments()]).catch((error) => console.warn("the list could not be read", error));
  }, SETTLE_MS);
}

/**
 * A job that is shown changes in place; a new one, or one whose state changed, may belong elsewhere: fetch.
 *
 * @param {string} event
 * @param {any} data
 */
function hear(event, data) {
  if (event === "deleted") {
    table.forget(data.id);
    return refresh();
  }
  if (event !== "job") return;
  table.update(data);
  if (states.get(data.id) !== data.state) refresh();
  states.set(data.id, data.state);
}

function wire() {
  byId("older").addEventListener("click", () => turn(() => filters.older(next)));
  byId("newer").addEventListener("click", () => turn(() => filters.newer()));
  byId("clear-choice").addEventListener("click", () => table.chooseNone());
}

/** @param {() => void} page */
function turn(page) {
  page();
  refresh();
  scrollTo({ top: 0 });
}

wire();
new Stream({ job: null, log: null }, { live: refresh, event: hear });
