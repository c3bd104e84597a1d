/** The page of one job: puts its parts together and feeds them from the API and the event stream. */
import { Actions } from "./actions.js";
import { Problem, listAttempts, listRanks, readJob, readSnapshots } from "./api.js";
import { AttemptStory } from "./attempts.js";
import { Charts } from "./chart.js";
import { Configuration } from "./configuration.js";
import { Difference } from "./difference.js";
import { byId, setText } from "./dom.js";
import { count } from "./format.js";
import { readConfiguration } from "./job-api.js";
import { JobHead } from "./job-head.js";
import { LogView } from "./log-view.js";
import { newest } from "./newest.js";
import { RankGrid } from "./rank-grid.js";
import { RankTable } from "./rank-table.js";
import { SnapshotList } from "./snapshots.js";
import { StackView } from "./stack-view.js";
import { Stream } from "./stream.js";
import { Timeline } from "./timeline.js";

const jobId = decodeURIComponent(location.pathname.split("/").at(-1) ?? "");

const head = new JobHead();
const actions = new Actions();
const charts = new Charts(jobId);
const configuration = new Configuration();
const story = new AttemptStory(byId("attempts"));
const stream = new Stream({ job: jobId, log: null }, { live: refresh, event: hear });
const log = new LogView(jobId, (followed) => {
  stream.subscribe({ job: jobId, log: followed });
  markRank();
});
const stack = new StackView(jobId, () => log.rank);
const ranks = new RankTable(byId("ranks"), (rank) => log.select(rank), (rank) => void stack.open(rank));
const grid = new RankGrid(byId("ranks-grid"), (rank) => log.select(rank));
const snapshots = new SnapshotList(jobId, (step) => actions.askResumeFrom(step), () => void refetch(showSnapshotList));

const timeline = new Timeline(byId("timeline"), byId("timeline-legend"));
new Difference(jobId);

/** @type {import("./api.js").Job | null} */
let job = null;
/** Ranks of the widest attempt. */
let widest = 0;

const showRanks = newest(() => listRanks(jobId), drawRanks);
const showAttempts = newest(() => listAttempts(jobId), drawAttempts);
const showSnapshotList = newest(() => readSnapshots(jobId), (taken) => snapshots.show(taken));
const showConfiguration = newest(() => readConfiguration(jobId), (facts) => configuration.showFacts(facts));
const showMetrics = () => charts.load();

/** Fetch everything the page shows. Runs whenever the stream has (again) begun to tell what changes. */
async function refresh() {
  try {
    showJob(await readJob(jobId));
    await refetch(showRanks, showAttempts, showMetrics, showSnapshotList, showConfiguration, () => log.refresh());
    byId("job").setAttribute("aria-busy", "false");
  } catch (error) {
    if (error instanceof Problem && error.status === 404) gone("There is no such job, or no more: it may have been deleted.");
    else console.warn("the job could not be read", error);
  }
}

/**
 * Each part by itself: one that fails leaves the others as fresh as they can be.
 *
 * @param {...() => Promise<void>} parts
 */
async function refetch(...parts) {
  const results = await Promise.allSettled(parts.map((part) => part()));
  for (const result of results) if (result.status === "rejected") console.warn("a part is not fresh", result.reason);
}

/**
 * @param {string} event
 * @param {any} data
 */
function hear(event, data) {
  if (event === "job" && data.id === jobId) return showJob(data);
  if (event === "deleted" && data.id === jobId) return gone("This job has been deleted.");
  if (event === "ranks" && data.attempt === job?.attempt) return showRanks.tell(data.items);
  if (event === "metrics") return charts.append(data);
  if (event === "log") return void log.hear(data);
}

/** @param {import("./api.js").Job} next */
function showJob(next) {
  const before = job;
  if (before && next.version < before.version) return;
  job = next;
  head.show(next);
  actions.show(next);
  stack.show(next);
  configuration.show(next);
  snapshots.setJob(next);
  timeline.show(next);
  offerLogs();
  void log.setLatest(next.attempt);
  if (!before) return;
  const turned = before.attempt !== next.attempt || before.state !== next.state;
  if (turned) void refetch(showAttempts, showRanks, showMetrics, showConfiguration);
  if (turned || before.snapshot_step !== next.snapshot_step) void refetch(showSnapshotList);
}

/** An elastic job may have fewer ranks now than it had. */
function offerLogs() {
  if (job) log.setRanks(job.world_size ?? job.ranks.max, widest);
}

/** @param {import("./api.js").Rank[]} items */
function drawRanks(items) {
  ranks.show(items);
  grid.show(items);
  markRank();
  setText(byId("ranks-summary"), summary(items));
  byId("ranks-empty").hidden = items.length > 0;
  byId("ranks-table").hidden = items.length === 0;
}

/** Which rank's log is shown. */
function markRank() {
  ranks.mark(log.rank);
  grid.mark(log.rank);
}

/** @param {import("./api.js").Rank[]} items */
function summary(items) {
  const steps = items.flatMap(({ step }) => (step === null ? [] : [step]));
  const running = items.filter(({ state }) => state === "running").length;
  const spread = Math.max(...steps) - Math.min(...steps);
  return items.length < 2 ? "" : `${running} of ${items.length} running${spread > 0 ? `, ${count(spread)} ${spread === 1 ? "step" : "steps"} apart` : ""}`;
}

/** @param {import("./api.js").Attempt[]} attempts */
function drawAttempts(attempts) {
  widest = Math.max(...attempts.map(({ world_size }) => world_size ?? 0), 0);
  offerLogs();
  story.show(attempts);
  charts.setAttempts(attempts);
  byId("attempts-empty").hidden = attempts.length > 0;
}

/** @param {string} sentence */
function gone(sentence) {
  stream.subscribe({ job: null, log: null });
  byId("job").hidden = true;
  byId("gone").hidden = false;
  setText(byId("gone-sentence"), sentence);
}
