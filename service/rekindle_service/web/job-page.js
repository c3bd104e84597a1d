/** The page of one job: puts its parts together and feeds them from the API and the event stream. */
import { Actions } from "./actions.js";
import { Problem, listAttempts, listMetrics, listRanks, readJob, readSnapshots } from "./api.js";
import { AttemptStory } from "./attempts.js";
import { Charts } from "./chart.js";
import { Configuration } from "./configuration.js";
import { byId, setText } from "./dom.js";
import { JobHead } from "./job-head.js";
import { LogView } from "./log-view.js";
import { RankTable } from "./rank-table.js";
import { showSnapshots } from "./snapshots.js";
import { StackView } from "./stack-view.js";
import { Stream } from "./stream.js";
import { Timeline } from "./timeline.js";

const jobId = decodeURIComponent(location.pathname.split("/").at(-1) ?? "");

const head = new JobHead();
const actions = new Actions();
const charts = new Charts(byId("metrics"), byId("metric-picker"), byId("charts"));
const configuration = new Configuration(byId("configuration"));
const story = new AttemptStory(byId("attempts"));
const stream = new Stream({ job: jobId, log: null }, { live: refresh, event: hear });
const log = new LogView(jobId, (followed) => {
  stream.subscribe({ job: jobId, log: followed });
  ranks.mark(log.rank);
});
const ranks = new RankTable(byId("ranks"), (rank) => log.select(rank));

const timeline = new Timeline(byId("timeline"), byId("timeline-legend"));
const stack = new StackView(jobId, () => log.rank);

/** @type {import("./api.js").Job | null} */
let job = null;
/** @type {import("./api.js").Attempt[]} */
let attempts = [];

/** Fetch everything the page shows. Runs whenever the stream has (again) begun to tell what changes. */
async function refresh() {
  try {
    showJob(await readJob(jobId));
    await refetch(showRanks, showAttempts, showMetrics, showSnapshotList, () => log.refresh());
    byId("job").setAttribute("aria-busy", "false");
  } catch (error) {
    if (error instanceof Problem && error.status === 404) gone(error.message);
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
  if (event === "ranks" && data.attempt === job?.attempt) return drawRanks(data.items);
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
  timeline.show(next, attempts);
  log.setRanks(rankNumbers(next));
  void log.setLatest(next.attempt);
  if (!before) return;
  const turned = before.attempt !== next.attempt || before.state !== next.state;
  if (turned) void refetch(showAttempts, showRanks, showMetrics);
  if (turned || before.snapshot_step !== next.snapshot_step) void refetch(showSnapshotList);
}

/** @param {import("./api.js").Job} of */
function rankNumbers(of) {
  return Array.from({ length: of.world_size ?? of.ranks.max }, (_, rank) => rank);
}

async function showRanks() {
  drawRanks(await listRanks(jobId));
}

/** @param {import("./api.js").Rank[]} items */
function drawRanks(items) {
  ranks.show(items);
  ranks.mark(log.rank);
  byId("ranks-empty").hidden = items.length > 0;
  byId("ranks-table").hidden = items.length === 0;
}

async function showAttempts() {
  attempts = await listAttempts(jobId);
  story.show(attempts);
  charts.setAttempts(attempts);
  if (job) timeline.show(job, attempts);
  byId("attempts-empty").hidden = attempts.length > 0;
}

async function showMetrics() {
  charts.load(await listMetrics(jobId));
}

async function showSnapshotList() {
  showSnapshots(await readSnapshots(jobId));
}

/** @param {string} sentence */
function gone(sentence) {
  stream.subscribe({ job: null, log: null });
  byId("job").hidden = true;
  byId("gone").hidden = false;
  setText(byId("gone-sentence"), sentence);
}
