/** The list of jobs: totals, slots, experiments, filters, live rows, and actions on many jobs at once. */
import { me } from "../shared/account.js";
import { call, experimentUrl } from "../shared/api.js";
import { DebouncedRefresh } from "../shared/debounced-refresh.js";
import { byId, h, patchChildren, setText } from "../shared/dom.js";
import { percent } from "../shared/format.js";
import { hasEnded } from "../shared/job-state.js";
import { keepFresh, markReady } from "../shared/live-page.js";
import { BulkActions } from "./bulk-actions.js";
import { showDevices } from "./device-strip.js";
import { JobTable } from "./job-table.js";
import { QueueFilters } from "./queue-filters.js";
import { onWaitingListChange, showWaiting } from "./waiting-list.js";

const PAGE_SIZE = 50;
const SHOWN_EXPERIMENTS = 5;
const OFFERED_EXPERIMENTS = 20;
const REFRESH_DELAY_MS = 250;
const QUEUE_DELAY_MS = 1000;

const filters = new QueueFilters(() => refreshing.now());
const bulk = new BulkActions(() => refreshing.now());
const table = new JobTable((selected) => bulk.show(selected));

/** @type {string | null} cursor of the next page */
let next = null;
/** @type {Map<string, string>} last known state of each job */
const states = new Map();

async function showJobs() {
  const query = filters.query;
  const answer = await call("GET /jobs", { ...query, limit: PAGE_SIZE });
  if (JSON.stringify(query) !== JSON.stringify(filters.query)) return; // the filters have changed meanwhile
  next = answer.next;
  answer.items.forEach((job) => states.set(job.id, job.state));
  table.show(answer.items);
  const none = answer.items.length === 0;
  byId("job-table").hidden = none;
  byId("nothing-yet").hidden = !none || filters.isFiltered;
  byId("nothing-found").hidden = !none || !filters.isFiltered;
  byId("pager").hidden = filters.isFirstPage && !next;
  byId("newer", HTMLButtonElement).disabled = filters.isFirstPage;
  byId("older", HTMLButtonElement).disabled = !next;
  markReady();
}

async function showTotals() {
  const [devices, { jobs, slots, goodput }] = await Promise.all([call("GET /devices"), call("GET /summary")]);
  showDevices(devices);
  setText(byId("total-running"), String(jobs.starting + jobs.running + jobs.recovering));
  setText(byId("total-queued"), String(jobs.queued));
  setText(byId("total-slots"), `${slots.held} / ${slots.total}`);
  setText(byId("total-goodput"), percent(goodput));
}

async function showQueue() {
  const owners = await showWaiting(filters.query.owner);
  filters.offerOwners([...owners, (await me.catch(() => null))?.person ?? null]);
}

async function showExperiments() {
  const { items } = await call("GET /experiments", { limit: OFFERED_EXPERIMENTS });
  filters.offer(items);
  byId("experiments").hidden = items.length === 0;
  byId("experiment-filter").hidden = items.length === 0;
  patchChildren(
    byId("experiment-links"),
    items.slice(0, SHOWN_EXPERIMENTS).map(({ id, name, title, jobs, over, states }) => {
      const ended = Object.entries(states).reduce((sum, [state, count]) => sum + (hasEnded({ state }) ? count : 0), 0);
      const link = h("a", { href: experimentUrl(id), title, "data-focus": id }, h("bdi", {}, name));
      return h("li", {}, link, h("span", { class: "muted" }, over ? `${jobs} jobs` : `${ended} of ${jobs}`));
    }),
  );
}

/** A job that is shown changes in place; a new one, or one whose state changed, may belong elsewhere: refresh. */
const refreshing = keepFresh(() => Promise.all([showJobs(), showTotals(), showQueue(), showExperiments()]), REFRESH_DELAY_MS, (event, data) => {
  if (event === "deleted") table.remove(data.id);
  if (event !== "job") return event === "deleted";
  table.update(data);
  const before = states.get(data.id);
  states.set(data.id, data.state);
  if (before === data.state && data.state === "queued") waiting.soon();
  return before !== data.state;
});

/** The scheduler writes a new reason or estimate to many jobs at once. */
const waiting = new DebouncedRefresh(showQueue, QUEUE_DELAY_MS);
onWaitingListChange(() => waiting.now());

/** @param {() => void} turn */
function turnPage(turn) {
  turn();
  refreshing.now();
  scrollTo({ top: 0 });
}

byId("older").addEventListener("click", () => turnPage(() => filters.nextPage(next)));
byId("newer").addEventListener("click", () => turnPage(() => filters.previousPage()));
byId("clear-selection").addEventListener("click", () => table.clearSelection());
