/**
 * The list of jobs: totals, slots, sections in the order in which people care, a filter, and actions on many jobs.
 *
 * @import { JobPublic as Job, OverviewItem } from "../shared/api-types.d.ts"
 */
import { call, experimentUrl, messageOf, Problem } from "../shared/api.js";
import { DebouncedRefresh } from "../shared/timing.js";
import { byId, h, patchChildren, setText } from "../shared/dom.js";
import { count, counted, percent } from "../shared/format.js";
import { hasEnded } from "../shared/job-state.js";
import "../shared/layout.js";
import { keepFresh, markReady } from "../shared/live-page.js";
import { showInTab } from "../shared/browser-storage.js";
import { BulkActions } from "./bulk-actions.js";
import { DesktopNotices } from "./desktop-notices.js";
import { showDevices, showShares } from "./device-bars.js";
import { showResults } from "./experiment-results.js";
import { FilterLine } from "./filter-line.js";
import { JobTable } from "./job-table.js";
import "./queue-keys.js";
import { Sparklines } from "./sparklines.js";

const PAGE_SIZE = 50;
const FEW = 20; // rows of a section
const FEW_URGENT = 6; // rows that need a person: what runs stays on the first screen
const MANY = 200; // what the server computes positions for
const SHOWN_EXPERIMENTS = 5;
const REFRESH_DELAY_MS = 250;
const REORDER_DELAY_MS = 1000;

const filter = new FilterLine(() => refreshing.now());
const bulk = new BulkActions(() => refreshing.now());
const table = new JobTable((selected) => bulk.show(selected));
const sparklines = new Sparklines(() => table.runningRows);
const notices = new DesktopNotices();

/** @type {string | null} cursor of the next page */
let next = null;
let limit = FEW;
/** @type {Map<string, string>} last known state of each job */
const states = new Map();
/** Jobs whose state was fetched before the event of it came: totals and shares may be those from before. @type {Set<string>} */
const early = new Set();
let isLoaded = false;

async function showJobs() {
  const query = filter.query;
  const isFiltered = filter.isFiltered;
  try {
    const shown = isFiltered ? await findJobs(query) : await readSections();
    if (JSON.stringify(query) !== JSON.stringify(filter.query)) return; // the filter has changed meanwhile
    setText(byId("filter-error"), "");
    table.show(shown);
  } catch (error) {
    if (!(error instanceof Problem && error.status === 422)) throw error;
    setText(byId("filter-error"), messageOf(error));
    return;
  }
  const none = table.isEmpty;
  byId("jobs").hidden = none;
  byId("nothing-yet").hidden = !none || isFiltered;
  byId("nothing-found").hidden = !none || !isFiltered;
  byId("pager").hidden = !isFiltered || (filter.isFirstPage && !next);
  byId("newer", HTMLButtonElement).disabled = filter.isFirstPage;
  byId("older", HTMLButtonElement).disabled = !next;
  markReady();
  isLoaded = true;
  void sparklines.refresh();
  void showResults(table.experimentRows);
}

/** @param {{q: string, cursor: string | null}} query */
async function findJobs(query) {
  const answer = await call("GET /jobs", { ...query, limit: PAGE_SIZE });
  next = answer.next;
  byId("show-more").hidden = true;
  remember(answer.items);
  return { found: { items: answer.items.map(asItem), total: null } };
}

async function readSections() {
  const { needs_you: urgent, running, next: waiting, done, counts } = await call("GET /overview", { limit });
  const needsYou = limit === FEW ? urgent.slice(0, FEW_URGENT) : urgent;
  const sections = [needsYou, running, waiting, done];
  remember(sections.flatMap((items) => items.flatMap(({ job }) => job ?? [])));
  const isCut = counts.needs_you > needsYou.length || counts.running > running.length || counts.next > waiting.length;
  byId("show-more").hidden = limit === FEW && !isCut && done.length < FEW;
  setText(byId("show-more"), limit === FEW ? "Show more" : "Show fewer");
  return {
    "needs-you": { items: needsYou, total: counts.needs_you },
    running: { items: running, total: counts.running },
    next: { items: waiting, total: counts.next },
    done: { items: done, total: null },
  };
}

/** @param {Job} job @returns {OverviewItem} */
const asItem = (job) => ({ kind: "job", reason: job.reason, at: null, job, experiment: null, device: null });

/** @param {Job[]} jobs */
function remember(jobs) {
  for (const { id, state } of jobs) {
    if (isLoaded && states.get(id) !== state) early.add(id);
    states.set(id, state);
  }
}

async function showTotals() {
  const [devices, { jobs, slots, goodput }] = await Promise.all([call("GET /devices"), call("GET /summary")]);
  showDevices(devices);
  const running = jobs.starting + jobs.running + jobs.recovering;
  setText(byId("total-running"), String(running));
  setText(byId("total-queued"), String(jobs.queued));
  setText(byId("total-slots"), `${slots.held} / ${slots.total}`);
  setText(byId("total-goodput"), percent(goodput));
  return running;
}

async function showExperiments() {
  const { items } = await call("GET /experiments", { limit: SHOWN_EXPERIMENTS });
  byId("experiments").hidden = items.length === 0;
  patchChildren(
    byId("experiment-links"),
    items.map(({ id, name, title, jobs, over, states: counts }) => {
      const ended = Object.entries(counts).reduce((sum, [state, found]) => sum + (hasEnded({ state }) ? found : 0), 0);
      const link = h("a", { href: experimentUrl(id), title, "data-focus": id }, h("bdi", {}, name));
      return h("li", {}, link, h("span", { class: "muted" }, over ? counted(jobs, "job") : `${count(ended)} of ${count(jobs)}`));
    }),
  );
}

/** The state of all in the tab. */
async function refresh() {
  const [running, { counts }] = await Promise.all([showTotals(), call("GET /overview", { limit: 1 }), showJobs(), showShares(), showExperiments()]);
  showInTab(counts.needs_you, running);
}

/** A job that is shown changes in place; a new one, or one whose state changed, belongs elsewhere: refresh. */
const refreshing = keepFresh(refresh, REFRESH_DELAY_MS, (event, data) => {
  if (event === "deleted") table.remove(data.id);
  if (event !== "job") return event === "deleted";
  const [before, isEarly] = [states.get(data.id), early.delete(data.id)];
  table.update(data);
  states.set(data.id, data.state);
  if (before && before !== data.state && hasEnded(data)) notices.ended(data);
  if (before === data.state && data.state === "queued") reordering.soon();
  return isEarly || before !== data.state;
});

/** The scheduler writes a new position, reason or estimate to many jobs at once. */
const reordering = new DebouncedRefresh(showJobs, REORDER_DELAY_MS);

/** @param {() => void} turn */
function turnPage(turn) {
  turn();
  refreshing.now();
  scrollTo({ top: 0 });
}

byId("older").addEventListener("click", () => turnPage(() => filter.nextPage(next)));
byId("newer").addEventListener("click", () => turnPage(() => filter.previousPage()));
byId("clear-selection").addEventListener("click", () => table.clearSelection());
byId("show-more").addEventListener("click", () => {
  limit = limit === FEW ? MANY : FEW;
  refreshing.now();
});
