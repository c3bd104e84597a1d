/**
 * The buttons of a job's page, each with a dialog that must be confirmed.
 *
 * @import { Fault, JobPublic as Job } from "../shared/api-types.d.ts"
 * @import { JobAction } from "../shared/job-actions.js"
 * @typedef {Omit<JobAction, "verb" | "done"> & ({verb: string} | {title: string, yes: string, note?: string})} Button
 */
import { mayChange, me } from "../shared/account.js";
import { call, jobUrl } from "../shared/api.js";
import { ConfirmDialog, field } from "../shared/confirm-dialog.js";
import { byId, h, setText } from "../shared/dom.js";
import { count } from "../shared/format.js";
import { CANCEL, DELETE, DRAIN, PRIORITY, RELEASE, RESUME, canResumeFrom, hasStopped } from "../shared/job-actions.js";

/** Each fault with what it does; those that need a rank come first. @type {[Fault, string][]} */
const FAULTS = [
  ["kill", "Kill a rank (SIGKILL)"],
  ["crash", "Crash a rank (SIGSEGV)"],
  ["raise", "Raise an exception in a rank"],
  ["hang", "Hang a rank"],
  ["stop", "Stop a rank (SIGSTOP)"],
  ["oom", "Out of memory in a rank"],
  ["agent", "Kill torchrun"],
  ["keeper", "Kill the keeper"],
  ["corrupt-snapshot", "Corrupt the latest snapshot"],
];
/** @param {string} fault */
const needsRank = (fault) => FAULTS.slice(0, 6).some(([name]) => name === fault);

/** @type {Button} */
const INJECT_FAULT = {
  title: "Inject a fault?",
  consequence: "The fault is real: the job replays the steps since its latest snapshot. It shows how this job recovers.",
  yes: "Inject the fault",
  fields: faultFields,
  possible: (job) => mayChange(job.owner) && job.state === "running",
  run: ({ id }, chosen) => {
    const [fault, rank] = [/** @type {Fault} */ (String(chosen.get("fault"))), String(chosen.get("rank"))];
    return call("POST /jobs/{job_id}/chaos", { job_id: id }, rank && needsRank(fault) ? { fault, rank: Number(rank) } : { fault });
  },
};

/** By the id of the button. @type {Record<string, Button>} */
const ACTIONS = {
  resume: RESUME,
  release: RELEASE,
  drain: DRAIN,
  cancel: CANCEL,
  priority: PRIORITY,
  chaos: INJECT_FAULT,
  delete: DELETE,
};

export class JobButtons {
  #dialog = new ConfirmDialog();
  /** @type {Job | null} */
  #job = null;
  /** @type {Button | null} */
  #open = null;
  /** A retry will probably fail as the last two attempts did. */
  #isHopeless = false;

  constructor() {
    for (const [button, action] of Object.entries(ACTIONS)) byId(button).addEventListener("click", () => this.#confirm(action));
    void me.then(() => this.#job && this.show(this.#job));
  }

  /** @param {Job} job */
  show(job) {
    this.#job = job;
    for (const [button, { possible }] of Object.entries(ACTIONS)) byId(button).hidden = !possible(job);
    setText(byId("resume"), job.state === "failed" ? "Retry" : "Resume");
    byId("resume").classList.toggle("primary", job.state !== "succeeded" && !this.#isHopeless);
    setText(byId("priority"), `Priority ${job.priority}`);
    const clone = byId("clone", HTMLAnchorElement);
    clone.href = `/submit?clone=${encodeURIComponent(job.id)}`;
    setText(clone, job.state === "failed" ? "Edit and resubmit" : "Clone");
    clone.classList.toggle("primary", job.state === "failed" && this.#isHopeless);
    if (this.#open && !this.#open.possible(job)) this.#dialog.close();
  }

  /** @param {boolean} isHopeless the job has failed twice by the same exception at the same line */
  discourageRetry(isHopeless) {
    this.#isHopeless = isHopeless;
    if (this.#job) this.show(this.#job);
  }

  /** @param {number | null} step the first one; null: that of the failure, else the last @param {string} [reason] what happened there */
  confirmReplay(step, reason) {
    this.#confirm({
      note: reason,
      title: "Replay steps?",
      consequence: "A job of its own computes these steps again, from the latest snapshot before them, and their digests are compared. This job is not touched.",
      yes: "Replay",
      fields: (job) => replayFields(step ?? (job && (failedStep(job) ?? job.step))),
      possible: hasStopped,
      run: async ({ id }, chosen) => {
        const [first, until, device] = ["step", "until", "device"].map((name) => String(chosen.get(name)).trim());
        const body = { step: Number(first), until: until ? Number(until) : null, device: device || null, record: chosen.has("record") };
        location.assign(jobUrl((await call("POST /jobs/{job_id}/replay", { job_id: id }, body)).id));
      },
    });
  }

  /** @param {number | string} chosen step of the snapshot to continue from, or path of a checkpoint of the script */
  confirmResume(chosen) {
    const isStep = typeof chosen === "number";
    this.#confirm({
      title: `Resume from ${isStep ? `step ${count(chosen)}` : chosen}?`,
      consequence: isStep
        ? "The job returns to the queue and continues from this snapshot. Later snapshots are quarantined, and deleted once the job has passed them again."
        : "The job returns to the queue. Newer checkpoints in its directory are moved away, not deleted, so a script that loads its latest one finds this one. A script that takes a path gets it as {checkpoint} in Append on restart (--on-restart).",
      yes: "Resume from here",
      possible: canResumeFrom,
      run: ({ id }) => call("POST /jobs/{job_id}/resume", { job_id: id }, isStep ? { snapshot: chosen } : { checkpoint: chosen }),
    });
  }

  /** @param {Button} action */
  #confirm(action) {
    const job = this.#job;
    if (!job) return;
    this.#open = action;
    const { title, yes, note } = "verb" in action ? { title: `${action.verb} this job${action === DELETE ? " and its files" : ""}?`, yes: `${action.verb} the job`, note: "" } : action;
    const { fields, run } = action;
    const consequence = ("loss" in action && action.loss?.(job)) || action.consequence;
    this.#dialog.open({ title, jobs: [job], consequence, note, fields: fields?.(job), yes, run: (chosen) => run(job, chosen) });
  }
}

/** @param {Job | null} job */
function faultFields(job) {
  const faults = h("select", {}, ...FAULTS.map(([value, text]) => h("option", { value }, text)));
  const numbers = Array.from({ length: job?.world_size ?? job?.ranks.max ?? 0 }, (_, rank) => rank);
  const ranks = h("select", {}, h("option", { value: "" }, "any"), ...numbers.map((rank) => h("option", { value: rank }, String(rank))));
  const rankField = field("Rank", "rank", ranks);
  faults.addEventListener("change", () => (rankField.hidden = !needsRank(faults.value)));
  return [field("Fault", "fault", faults), rankField];
}

/** @param {number | null} first */
function replayFields(first) {
  const step = (/** @type {object} */ more) => h("input", { type: "number", min: 1, ...more });
  return [
    field("First step", "step", step({ value: first, required: true })),
    field("Last step", "until", step({ placeholder: "the first" })),
    field("Device", "device", h("input", { placeholder: "as the original", autocomplete: "off", spellcheck: "false" })),
    field("Record layers", "record", h("input", { type: "checkbox", title: "And the batch, of the first step" })),
  ];
}

/** The step at which the values were not finite or the ranks diverged, as the outcome states it. @param {Job} job */
function failedStep({ outcome }) {
  const found = ["nan", "divergence"].includes(outcome?.class) && /\bsteps? (?:\d+ to )?(\d+)/.exec(outcome?.message);
  return found ? Number(found[1]) : null;
}
