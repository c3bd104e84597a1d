/**
 * What a user can do to jobs, one at a time or many at once: when it is possible for them, what it leads to, and the request.
 *
 * @import { JobPublic as Job } from "./api-types.d.ts"
 * @typedef {object} JobAction
 * @property {string} verb as in "Cancel 3 jobs?"
 * @property {string} done as in "3 jobs cancelled"
 * @property {string} consequence
 * @property {(job: Job) => string} [loss] what is lost of this job, said instead of the consequence; empty for none
 * @property {(job: Job) => boolean} possible
 * @property {(job: Job | null) => HTMLElement[]} [fields] what to choose first; the job is null where there are several
 * @property {(job: Job, chosen: FormData) => Promise<unknown>} run
 */
import { mayChange, me } from "./account.js";
import { call, warn } from "./api.js";
import { field } from "./confirm-dialog.js";
import { h } from "./dom.js";
import { ago } from "./format.js";
import { hasEnded, isHeld } from "./job-state.js";

/** What a drain loses of a script that reports no steps; empty for one that does. @param {Job} job */
export function drainLoss({ step, state, checkpoints }) {
  if (step !== null || state === "queued") return "";
  const stopped = "This script reports no steps to rekindle: it is stopped by SIGTERM, and unless it saves then,";
  const latest = checkpoints.find(({ complete, attempt }) => complete && attempt > 0);
  if (!latest) return `${stopped} all its work is lost: no checkpoint of its own was found.`;
  return `${stopped} what it did after its checkpoint ${latest.path} (${ago(latest.written_at)}) is lost.`;
}

/** @type {JobAction} */
export const HOLD = {
  verb: "Hold",
  done: "held",
  consequence: "A held job stays in the queue and does not start until you release it.",
  possible: (job) => mayChange(job.owner) && job.state === "queued" && job.intent === "run",
  run: ({ id }) => call("POST /jobs/{job_id}/drain", { job_id: id }),
};

/** @type {JobAction} */
export const DRAIN = {
  verb: "Drain",
  done: "drained",
  consequence: "A drained job saves a snapshot at the next step boundary, releases its slots and returns to the queue, on hold until you release it.",
  loss: drainLoss,
  possible: (job) => mayChange(job.owner) && !hasEnded(job) && job.state !== "queued" && job.intent === "run",
  run: HOLD.run,
};

/** @type {JobAction} */
export const RELEASE = {
  verb: "Release",
  done: "released",
  consequence: "A released job starts as soon as slots are free, from its latest snapshot if it has one.",
  possible: (job) => mayChange(job.owner) && !hasEnded(job) && (job.intent === "hold" || job.intent === "drain"),
  run: ({ id }) => call("POST /jobs/{job_id}/resume", { job_id: id }, {}),
};

/** @type {JobAction} */
export const RESUME = {
  verb: "Resume",
  done: "resumed",
  consequence: "The job returns to the queue and continues from its latest snapshot. A job that has finished its training ends again immediately.",
  possible: (job) => mayChange(job.owner) && hasEnded(job),
  run: RELEASE.run,
};

/** @type {JobAction} */
export const CANCEL = {
  verb: "Cancel",
  done: "cancelled",
  consequence: "A cancelled job stops and is not retried. Its logs and snapshots are kept, and you can resume it later.",
  possible: (job) => mayChange(job.owner) && !hasEnded(job) && job.intent !== "cancel",
  run: ({ id }) => call("POST /jobs/{job_id}/cancel", { job_id: id }),
};

/** @type {JobAction} */
export const PRIORITY = {
  verb: "Change the priority of",
  done: "changed",
  consequence: "Queued jobs with a higher priority start first and stop running ones of lower priority, which resume later: by default only those of the same owner. From −1000 to 1000, default 0.",
  possible: (job) => mayChange(job.owner) && !hasEnded(job),
  fields: (job) => [field("Priority", "priority", h("input", { type: "number", min: -1000, max: 1000, value: job?.priority ?? 0, required: true }))],
  run: ({ id }, chosen) => call("PATCH /jobs/{job_id}", { job_id: id }, { priority: Number(chosen.get("priority")) }),
};

/** @type {JobAction} */
export const TAG = {
  verb: "Tag",
  done: "tagged",
  consequence: "Separate tags with spaces. A minus before a tag removes it: -old.",
  possible: (job) => mayChange(job.owner),
  fields: () => [field("Tags", "tags", h("input", { required: true, autocomplete: "off", spellcheck: "false" }))],
  run: ({ id, tags }, chosen) => {
    const words = String(chosen.get("tags")).split(/\s+/).filter(Boolean);
    const removed = new Set(words.filter((word) => word.startsWith("-")).map((word) => word.slice(1)));
    const added = words.filter((word) => !word.startsWith("-"));
    return call("PATCH /jobs/{job_id}", { job_id: id }, { tags: [...tags, ...added].filter((tag) => !removed.has(tag)) });
  },
};

/** @type {JobAction} */
export const NOTE = {
  verb: "Write a note on",
  done: "changed",
  consequence: "The note replaces the previous one; an empty note removes it.",
  possible: (job) => mayChange(job.owner),
  fields: (job) => [field("Note", "note", h("input", { value: job?.note ?? "", maxlength: 2000 }))],
  run: ({ id }, chosen) => call("PATCH /jobs/{job_id}", { job_id: id }, { note: String(chosen.get("note")) }),
};

/** @satisfies {JobAction} */
export const SEEN = {
  verb: "Mark as seen",
  done: "marked as seen",
  consequence: "A failure marked as seen moves from Needs you to Done.",
  possible: (job) => mayChange(job.owner) && job.state === "failed" && !job.seen_at,
  run: ({ id }) => call("PATCH /jobs/{job_id}", { job_id: id }, { seen: true }),
};

/** @type {JobAction} */
export const ARCHIVE = {
  verb: "Archive",
  done: "archived",
  consequence: "Archived jobs keep all their files. The filter is:archived lists them, and resuming a job removes it from the archive.",
  possible: (job) => mayChange(job.owner) && hasEnded(job) && !job.archived_at,
  run: ({ id }) => call("PATCH /jobs/{job_id}", { job_id: id }, { archived: true }),
};

/** @type {JobAction} */
export const DELETE = {
  verb: "Delete",
  done: "deleted",
  consequence: "Logs, metrics, snapshots and everything else in the job directory are deleted from disk. This cannot be undone.",
  possible: (job) => mayChange(job.owner) && hasEnded(job),
  run: ({ id }) => call("DELETE /jobs/{job_id}", { job_id: id }),
};

/** Whether the job can continue from a snapshot that the user chooses. @param {Job} job */
export const canResumeFrom = (job) => RESUME.possible(job) || (mayChange(job.owner) && isHeld(job));

/** Whether the server computes steps of the job again: nothing writes its files any more. @param {Job} job */
export const hasStopped = (job) => hasEnded(job) || (job.state === "queued" && job.intent !== "run");

// --- seen: A failure that somebody has looked at needs nobody any more.

let isMarking = false;

/** Mark a failure as seen while a person who may change the job looks at it. @param {Job} job */
export async function markSeen(job) {
  if (isMarking || document.hidden || !SEEN.possible(job)) return;
  isMarking = true;
  await me;
  if (!mayChange(job.owner)) return; // for good: this page may not change it
  await SEEN.run(job).catch(warn("that the failure was seen"));
  isMarking = false;
}
