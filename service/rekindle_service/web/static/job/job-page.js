/**
 * The page of one job: creates its parts and feeds them from the API and the event stream.
 *
 * @import { AttemptPublic as Attempt, JobPublic as Job, RankPublic as Rank, SnapshotList as Listing, Story } from "../shared/api-types.d.ts"
 */
import { EventStream } from "../events/event-stream.js";
import { followCursor, moveCursor, pointAtLines, showCursor } from "../log/log-cursor.js";
import { END, parsePermalink } from "../log/log-permalink.js";
import { LogViewer } from "../log/log-viewer.js";
import { call, isNotFound } from "../shared/api.js";
import { byId } from "../shared/dom.js";
import { hasEnded } from "../shared/job-state.js";
import { latestWins } from "../shared/timing.js";
import "../shared/layout.js";
import { idInUrl, markReady, showGone } from "../shared/live-page.js";
import { markSeen } from "../shared/browser-storage.js";
import { makeTabs } from "../shared/tabs.js";
import { showAttemptList } from "./attempt-list.js";
import { TimeAxis } from "./axis/time-axis.js";
import { getView, onView, setView } from "./axis/view-state.js";
import { showCheckpoints, SnapshotList } from "./snapshots.js";
import { compareWithOthers, showRecorded, showSubmitted } from "./configuration.js";
import { JobActions } from "./job-actions.js";
import { JobCharts } from "./job-charts.js";
import { showHeader } from "./job-header.js";
import "./job-keys.js";
import { Ranks, showStack } from "./ranks.js";
import { StoryView, isOutdated } from "./story.js";

const jobId = idInUrl();

const actions = new JobActions();
const axis = new TimeAxis(jobId, (step) => actions.confirmResume(step), (moment) => log.point(moment));
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
followCursor(log);
pointAtLines((time) => axis.showTime(time));
const ranks = new Ranks((rank) => log.select(rank), (rank) => void showStack(jobId, rank));
const snapshots = new SnapshotList(jobId, (step) => actions.confirmResume(step), () => void refetch(fetchSnapshots));
onView(({ rank }, before) => rank !== null && rank !== before.rank && log.select(rank));
const story = new StoryView(jobId, openAtCulprit);
void compareWithOthers(jobId);
const showTab = makeTabs(byId("tabs"));
if (new URLSearchParams(location.search).has("diff")) showTab("tab-configuration");
byId("stack-open").addEventListener("click", () => void showStack(jobId, log.rank));

/** @type {Job | null} */
let job = null;
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
    const parts = [fetchRanks, fetchAttempts, fetchMetrics, fetchSnapshots, fetchConfiguration, () => axis.refresh(), () => log.refresh()];
    await refetch(() => story.refresh(), ...parts);
    openChosenRank();
    markReady();
  } catch (error) {
    if (isNotFound(error)) showDeleted("There is no such job. It may have been deleted.");
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
  if (event === "deleted" && data.id === jobId) return showDeleted("This job has been deleted.");
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
  actions.show(next);
  void markSeen(next);
  showSubmitted(next);
  showCheckpoints(next);
  snapshots.setJob(next);
  axis.setJob(next);
  byId("stack-open").hidden = next.state !== "running";
  offerLogs();
  log.setLive(!hasEnded(next) && next.state !== "queued");
  void log.setLatest(next.attempt).then(() => showCursor(log));
  if (!before) return;
  const changed = before.attempt !== next.attempt || before.state !== next.state;
  if (isOutdated(before, next)) void refetch(() => story.refresh());
  if (changed) void refetch(fetchAttempts, fetchRanks, fetchMetrics, fetchConfiguration);
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
  maxWorldSize = Math.max(...attempts.map(({ world_size }) => world_size ?? 0), 0);
  offerLogs();
  showAttemptList(attempts, (number) => void story.choose(number));
  charts.setAttempts(attempts);
  axis.setAttempts(attempts);
}

/** @param {Listing} listing */
function showSnapshots(listing) {
  snapshots.show(listing);
  axis.setSnapshots(listing.items);
}

/** @param {string} sentence */
function showDeleted(sentence) {
  stream.subscribe();
  showGone(sentence);
}
