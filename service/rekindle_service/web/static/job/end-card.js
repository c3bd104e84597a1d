/**
 * The card of a job that has ended: its best metrics and checkpoint, the faults it survived, and how to run it again.
 *
 * @import { AttemptPublic as Attempt, JobPublic as Job, SnapshotList as Listing, TimeBreakdown } from "../shared/api-types.d.ts"
 */
import { bestPoint, countedBy } from "../charts/chart-data.js";
import { MetricStore, resumeSteps } from "../charts/metric-store.js";
import { call, warn } from "../shared/api.js";
import { byId, copyText, h, patchChildren } from "../shared/dom.js";
import { count, counted, duration, significant } from "../shared/format.js";
import { hasEnded } from "../shared/job-state.js";
import { revisionText } from "../shared/job-parameters.js";
import { submitCommand } from "./configuration.js";

const MAX_BEST = 3;
/** Metrics that a person compares jobs by, before those of the training data. */
const VALIDATION = /val|eval|test/i;
/** Metrics of the machine: how good the model is does not follow from them. */
const COST = /time|latency|duration|memory|load|overhead|throughput|speed|per_s|goodput|utili[sz]ation/i;
const NO_FAULTS = new Set(["success", "preempted", "cancelled"]);

/** When the job that is shown ended. @type {string | null} */
let shown = null;

/** @param {Job} job */
export function showEnd(job) {
  const { ended_at: endedAt } = job;
  byId("job-progress").hidden = hasEnded(job);
  if (!hasEnded(job)) byId("end-card").hidden = true;
  if (shown === endedAt) return;
  shown = endedAt;
  if (hasEnded(job)) void draw(job).catch(warn("the result"));
}

/** @param {Job} job */
async function draw(job) {
  const id = { job_id: job.id };
  const [{ items: attempts }, time, snapshots] = await Promise.all([
    call("GET /jobs/{job_id}/attempts", id),
    call("GET /jobs/{job_id}/time", id),
    call("GET /jobs/{job_id}/snapshots", id),
  ]);
  const best = await bestTexts(job, attempts);
  if (shown !== job.ended_at) return;
  const command = submitCommand(job);
  const copied = h("output", { class: "muted" });
  /** @type {[string, import("../shared/dom.js").Child[]][]} */
  const rows = [
    ["Best", best.length ? [h("bdi", {}, best.join("; "))] : []],
    ["Checkpoint", [checkpointLink(job, snapshots)]],
    [job.state === "failed" ? "Retried after" : "Survived", [faultsText(attempts, time)]],
    ["Code", [revisionText(job)]],
    ["Run again", [h("code", {}, command), h("button", { type: "button", class: "link", onclick: () => void copyText(command, copied) }, "Copy"), copied]],
  ];
  const known = rows.map(([label, parts]) => /** @type {const} */ ([label, parts.filter((part) => part)])).filter(([, parts]) => parts.length);
  patchChildren(byId("end-facts"), known.flatMap(([label, parts]) => [h("dt", {}, label), h("dd", {}, ...parts)]));
  byId("end-card").hidden = false;
}

/**
 * "loss 0.031 at step 480 (from the output)", by what the names suggest. Values of steps that were lost do not count.
 *
 * @param {Job} job @param {Attempt[]} attempts
 */
async function bestTexts({ id, snapshot: { monitor } }, attempts) {
  const { items: names } = await call("GET /jobs/{job_id}/metrics/names", { job_id: id });
  const monitored = monitor?.replace(/^-/, "");
  const order = (/** @type {string} */ name) => (name === monitored ? 0 : VALIDATION.test(name) ? 1 : 2);
  const chosen = names.filter(({ name, goal }) => name === monitored || (goal !== null && !COST.test(name)));
  chosen.sort((one, other) => order(one.name) - order(other.name)).splice(MAX_BEST);
  if (!chosen.length) return [];
  const store = new MetricStore();
  store.load((await call("GET /jobs/{job_id}/metrics", { job_id: id, name: chosen.map(({ name }) => name) })).items);
  return chosen.flatMap(({ name, goal, printed }) => {
    const points = store.parts(name, resumeSteps(attempts)).flatMap(({ kept }) => kept);
    const best = bestPoint(points, name !== monitored ? goal : monitor?.startsWith("-") ? "min" : "max");
    return best ? [`${name} ${significant(best[3] ?? NaN)} at ${countedBy(points)} ${count(best[0])}${printed ? " (from the output)" : ""}`] : [];
  });
}

/** Leads to the list of snapshots: of the best one, else of the latest. @param {Job} job @param {Listing} snapshots */
function checkpointLink({ checkpoints }, { items }) {
  const snapshot = items.find(({ best }) => best) ?? items.find(({ verified }) => verified);
  const own = checkpoints.find(({ complete, attempt }) => complete && attempt > 0);
  const text = snapshot ? `snapshot of step ${count(snapshot.step)}${snapshot.best ? ", the best" : ""}` : own?.path;
  const show = () => {
    byId("tab-snapshots").click();
    byId("tab-snapshots").scrollIntoView();
  };
  return text && h("button", { type: "button", class: "link", onclick: show }, h("bdi", {}, text));
}

/** "2 faults: SIGKILL twice, OOM; 8 steps replayed, 20 s lost". @param {Attempt[]} attempts @param {TimeBreakdown} time */
function faultsText(attempts, { intervals }) {
  const faults = attempts.slice(0, -1).filter(({ outcome }) => outcome && !NO_FAULTS.has(outcome.class));
  if (!faults.length) return "";
  const causes = Map.groupBy(faults, ({ outcome }) => outcome?.signal ?? outcome?.exception ?? String(outcome?.class).replaceAll("_", " "));
  const named = [...causes].map(([cause, { length }]) => (length > 1 ? `${cause} (${length})` : cause)).join(", ");
  const replayed = faults.reduce((sum, { replayed_steps: steps }) => sum + (steps ?? 0), 0);
  const idle = intervals.filter(({ category, attempt }) => ["waiting", "stalled"].includes(category) || (category === "starting" && faults.some(({ number }) => number + 1 === attempt)));
  const lost = [replayed && `${counted(replayed, "step")} replayed`, `${duration(idle.reduce((sum, { seconds }) => sum + seconds, 0))} of downtime`];
  return `${counted(faults.length, "fault")}: ${named}; ${lost.filter(Boolean).join(", ")}`;
}
