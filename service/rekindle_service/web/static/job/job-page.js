/**
 * The page of one job: creates its parts and feeds them from the API and the event stream.
 *
 * @import { AttemptPublic as Attempt, JobPublic as Job, RankPublic as Rank, SnapshotList as Listing, Story } from "../shared/api-types.d.ts"
 */
import { EventStream } from "../events/event-stream.js";
import { END, parsePermalink } from "../log/log-permalink.js";
import { LogViewer } from "../log/log-viewer.js";
import { call, isNotFound } from "../shared/api.js";
import { byId } from "../shared/dom.js";
import { markSeen } from "../shared/job-actions.js";
import { hasEnded } from "../shared/job-state.js";
import { focusOn, registerKeys } from "../shared/keys.js";
import { idInUrl, markReady, showGone } from "../shared/live-page.js";
import { latestWins } from "../shared/timing.js";
import { showAttemptList } from "./attempt-list.js";
import { TimeAxis } from "./axis/time-axis.js";
import { getView, onView, setView } from "./axis/view-state.js";
import { compareWithOthers, showRecorded, showSubmitted } from "./configuration.js";
import { JobButtons } from "./job-buttons.js";
import { showEnd } from "./end-card.js";
import { JobCharts } from "./job-charts.js";
import { showHeader } from "./job-header.js";
import { showReplay } from "./replay-card.js";
import { Ranks, showStack } from "./ranks.js";
import { showCheckpoints, SnapshotList } from "./snapshots.js";
import { StepTimesStrip } from "./step-times.js";
import { StoryView, isOutdated } from "./story.js";

// --- The cursor that the log shares with the time axis: a line that the user points at or chooses moves it, and the
// log shows the line of the moment that is chosen elsewhere or that a shared link names.

/** The moment that the log shows, in seconds since the epoch. @type {number | null} */
let shownAt = null;

/** @param {{time: number, rank: number, stream: string}} line time in seconds since the epoch */
function moveCursor({ time, rank, stream }) {
  shownAt = time;
  setView({ t: time, rank, stream: stream === "stderr" ? "stderr" : "stdout" });
}

/** Show the moment of the cursor, unless the log shows it already. @param {LogViewer} log that has an attempt */
function showCursor(log) {
  const { t, rank, stream, attempt } = getView();
  if (t === null || t === shownAt) return;
  shownAt = t;
  void log.showTime(t, { rank, stream, attempt });
}

/** Point at the moment of the line that the pointer is on. @param {(at: number | null) => void} onPoint null: the pointer has left the log */
function pointAtLines(onPoint) {
  for (const node of [byId("log"), byId("log-merged")]) {
    node.addEventListener("pointerover", ({ target }) => {
      const row = target instanceof Element ? target.closest(".log-line") : null;
      onPoint(row instanceof HTMLElement && row.dataset.at ? Number(row.dataset.at) : null);
    });
    node.addEventListener("pointerleave", () => onPoint(null));
  }
}

// --- The keys of a job's page: each does what a control of the page does.

/** Click a control, unless the job does not offer it now. @param {string} id */
const click = (id) => () => {
  const control = document.getElementById(id);
  if (control && control.checkVisibility()) control.click();
};

/** Choose the option before or after the one that is chosen. @param {string} id of a select @param {1 | -1} step */
const choose = (id, step) => () => {
  const select = byId(id, HTMLSelectElement);
  const next = select.selectedIndex + step;
  if (next < 0 || next >= select.options.length) return;
  select.selectedIndex = next;
  select.dispatchEvent(new Event("change", { bubbles: true }));
};

/** @param {string} tab */
const openTab = (tab) => () => {
  byId(tab).click();
  focusOn(tab)();
};

registerKeys("This job", {
  w: ["what happened", focusOn("story-title")],
  e: ["open the error in the log", click("story-log")],
  y: ["copy what happened", click("story-copy")],
  r: ["retry or resume", click("resume")],
  D: ["drain", click("drain")],
  X: ["cancel", click("cancel")],
  1: ["attempts", openTab("tab-attempts")],
  2: ["snapshots", openTab("tab-snapshots")],
  3: ["configuration", openTab("tab-configuration")],
});
registerKeys("Time axis and charts", {
  t: ["go to the time axis", focusOn("axis-slider")],
  "← →": ["earlier, later; with Shift ten times as far", null],
  "Home End": ["beginning, end", null],
  "+ -": ["zoom in, out", null],
  Enter: ["in a chart: show the log at the cursor", null],
  Escape: ["show everything", null],
});
registerKeys("Log", {
  l: ["go to the log", () => focusOn(byId("log").hidden ? "log-merged" : "log")()],
  "/": ["search the log", focusOn("log-query")],
  n: ["next match", click("log-next")],
  N: ["previous match", click("log-previous")],
  "[": ["previous rank", choose("log-rank", -1)],
  "]": ["next rank", choose("log-rank", 1)],
  o: ["other stream", () => choose("log-stream", byId("log-stream", HTMLSelectElement).selectedIndex ? -1 : 1)()],
  f: ["follow the output, or go to its end", click("log-follow")],
  F: ["full height, and back", click("log-full")],
});

// --- Tabs as in the ARIA pattern: one panel is shown, arrow keys, Home and End move between the tabs.

/**
 * Make a tab list of an element whose tabs name their panels by `aria-controls`; the first tab is shown.
 *
 * @param {HTMLElement} list
 */
function makeTabs(list) {
  const tabs = /** @type {HTMLElement[]} */ ([...list.querySelectorAll("[role=tab]")]);
  const show = (/** @type {string} */ id) => tabs.forEach((tab) => markTab(tab, tab.id === id));
  for (const tab of tabs) tab.addEventListener("click", () => show(tab.id));
  list.addEventListener("keydown", (event) => {
    const next = neighbourTab(tabs, event.key);
    if (!next) return;
    event.preventDefault();
    show(next.id);
    next.focus();
  });
  show(tabs[0].id);
}

/** @param {HTMLElement} tab @param {boolean} chosen */
function markTab(tab, chosen) {
  tab.setAttribute("aria-selected", String(chosen));
  tab.tabIndex = chosen ? 0 : -1;
  byId(tab.getAttribute("aria-controls") ?? "").hidden = !chosen;
}

/** The tab to which a key leads. @param {HTMLElement[]} tabs @param {string} key @returns {HTMLElement | undefined} */
function neighbourTab(tabs, key) {
  const index = tabs.findIndex((tab) => tab === document.activeElement);
  const targets = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: -1 };
  return key in targets ? tabs.at(targets[/** @type {keyof typeof targets} */ (key)] % tabs.length) : undefined;
}

// --- The page.

const jobId = idInUrl();

const actions = new JobButtons();
const axis = new TimeAxis(jobId, (step) => actions.confirmResume(step), (step, reason) => actions.confirmReplay(step, reason), (moment) => log.point(moment));
const stepTimes = new StepTimesStrip(jobId);
const charts = new JobCharts(jobId, axis);
const stream = new EventStream({ resync: refresh, event: onEvent }, { job: jobId, log: null });
/** The rank whose log is shown; the URL names it once the user has chosen another one. */
let shownRank = 0;
const log = new LogViewer(jobId, (followed) => {
  stream.subscribe({ job: jobId, log: followed });
  ranks.mark(log.rank);
  if (isOpen && log.rank !== shownRank && !parsePermalink(location.hash)) setView({ rank: log.rank });
  shownRank = log.rank;
}, moveCursor);
onView(() => showCursor(log));
pointAtLines((time) => axis.showTime(time));
const ranks = new Ranks((rank) => log.select(rank), (rank) => void showStack(jobId, rank));
const snapshots = new SnapshotList(jobId, (step) => actions.confirmResume(step), () => void refetch(fetchSnapshots));
onView(({ rank }, before) => rank !== null && rank !== before.rank && log.select(rank));
const story = new StoryView(jobId, (shown, isFirst) => {
  actions.discourageRetry(shown.repeated);
  if (isFirst) openAtCulprit(shown);
});
compareWithOthers(jobId);
makeTabs(byId("tabs"));
byId("stack-open").addEventListener("click", () => void showStack(jobId, log.rank));

/** @type {Job | null} */
let job = null;
const DELETED = "This job has been deleted, and its files.";
/** The log is that of the rank which the URL names, or has been chosen since. */
let isOpen = false;
/** From where the latest attempt resumes, which it learns only after its ranks have started. */
let isStartKnown = true;
/** Ranks of the attempt that had the most. */
let maxWorldSize = 0;

const fetchRanks = latestWins(() => call("GET /jobs/{job_id}/ranks", { job_id: jobId }), ({ items }) => showRanks(items));
const fetchAttempts = latestWins(() => call("GET /jobs/{job_id}/attempts", { job_id: jobId }), ({ items }) => showAttempts(items));
const fetchSnapshots = latestWins(() => call("GET /jobs/{job_id}/snapshots", { job_id: jobId }), showSnapshots);
const fetchConfiguration = latestWins(() => call("GET /jobs/{job_id}/configuration", { job_id: jobId }), showRecorded);
const fetchMetrics = () => charts.load();

/** Fetch everything the page shows, whenever the stream has started or started again. */
async function refresh() {
  try {
    showJob(await call("GET /jobs/{job_id}", { job_id: jobId }));
    const parts = [fetchRanks, fetchAttempts, fetchMetrics, fetchSnapshots, fetchConfiguration, () => axis.refresh(), () => stepTimes.refresh(), () => log.refresh()];
    await refetch(() => story.refresh(), ...parts);
    openChosenRank();
    markReady();
  } catch (error) {
    if (isNotFound(error)) showDeleted(job ? DELETED : "There is no such job. It may have been deleted.");
    else console.warn("the job could not be read", error);
  }
}

/** At first the rank that the URL names, if there is one. */
function openChosenRank() {
  const { rank } = getView();
  if (!isOpen && rank !== null && rank < maxWorldSize) log.select(rank);
  isOpen = true;
}

/**
 * Each part by itself: one that fails does not keep the others from being updated.
 *
 * @param {...() => Promise<void>} parts
 */
async function refetch(...parts) {
  const results = await Promise.allSettled(parts.map((part) => part()));
  for (const result of results) if (result.status === "rejected") console.warn("a part of the page is not up to date", result.reason);
}

/** @param {string} event @param {any} data */
function onEvent(event, data) {
  if (event === "job" && data.id === jobId) return showJob(data);
  if (event === "deleted" && data.id === jobId) return showDeleted(DELETED);
  if (event === "ranks" && data.attempt === job?.attempt) return fetchRanks.push(data);
  if (event === "metrics") return charts.append(data);
  if (event === "log") return void log.onChunk(data);
}

/** @param {Job} next */
function showJob(next) {
  const before = job;
  if (before && next.version < before.version) return;
  job = next;
  showHeader(next);
  showEnd(next);
  showReplay(next);
  actions.show(next);
  void markSeen(next);
  showSubmitted(next);
  showCheckpoints(next, (path) => actions.confirmResume(path));
  snapshots.setJob(next);
  axis.setJob(next);
  stepTimes.isLive = next.state === "running";
  byId("stack-open").hidden = next.state !== "running";
  offerLogs();
  log.setLive(!hasEnded(next) && next.state !== "queued");
  void log.setLatest(next.attempt).then(() => showCursor(log));
  if (!before) return;
  const changed = before.attempt !== next.attempt || before.state !== next.state;
  if (isOutdated(before, next)) void refetch(() => story.refresh());
  if (changed) void refetch(() => stepTimes.refresh(), fetchAttempts, fetchRanks, fetchMetrics, fetchConfiguration);
  if (changed || before.snapshot_step !== next.snapshot_step) void refetch(fetchSnapshots);
}

/**
 * A job that has failed or hangs opens at the output of the rank that is to blame, unless the URL points elsewhere.
 *
 * @param {Story} first
 */
function openAtCulprit({ kind, rank, stream, attempt, offset }) {
  if (location.hash || rank === null || (kind !== "failure" && kind !== "hang")) return;
  log.show({ rank, stream: stream ?? "stderr", attempt, offset: offset ?? END });
}

/** An elastic job may have fewer ranks now than it had. */
function offerLogs() {
  if (job) log.setRanks(job.world_size ?? job.ranks.max, maxWorldSize);
}

/** @param {Rank[]} items */
function showRanks(items) {
  ranks.show(items, log.rank);
  if (!isStartKnown) void refetch(fetchAttempts);
}

/** @param {Attempt[]} attempts */
function showAttempts(attempts) {
  const [latest, wasKnown] = [attempts.at(-1), isStartKnown];
  isStartKnown = !latest || latest.number === 1 || latest.ended_at !== null || latest.resumed_from_step !== null || latest.resumed_from_path !== null;
  if (isStartKnown && !wasKnown) void refetch(() => story.refresh());
  maxWorldSize = Math.max(...attempts.map(({ world_size }) => world_size), 0);
  offerLogs();
  showAttemptList(attempts, (number) => void story.choose(number));
  charts.setAttempts(attempts);
  axis.setAttempts(attempts);
}

/** @param {Listing} listing */
function showSnapshots(listing) {
  snapshots.show(listing);
  axis.setSnapshots(listing.items, listing.policy !== null);
}

/** @param {string} sentence */
function showDeleted(sentence) {
  stream.subscribe();
  showGone(sentence);
}
