/** What can be asked of a job, each after a question in a dialog. */
import { act, forget } from "./api.js";
import { byId, h, setText } from "./dom.js";
import { injectFault, resumeFrom, setPriority } from "./job-api.js";
import { count } from "./format.js";

/**
 * @typedef {import("./api.js").Job} Job
 * @typedef {object} Action
 * @property {string} [button] id of its button; none where something else asks
 * @property {(job: Job) => string} [label] of its button, where it depends on the job
 * @property {string} question
 * @property {string} consequence
 * @property {string} yes label of the button that does it
 * @property {(job: Job) => HTMLElement[]} [fields] what is to be chosen first
 * @property {(job: Job) => boolean} offered
 * @property {(job: Job, chosen: FormData) => Promise<unknown>} run
 */

const ENDED = new Set(["succeeded", "failed", "cancelled"]);
const AT_WORK = new Set(["starting", "running", "recovering"]);
/** Each fault with what it does; those of a rank come first. */
const FAULTS = [
  ["kill", "Kill a rank (SIGKILL)"],
  ["crash", "Crash a rank (SIGSEGV)"],
  ["raise", "Raise an exception in a rank"],
  ["hang", "Hang a rank"],
  ["stop", "Stop a rank (SIGSTOP)"],
  ["oom", "Out of memory in a rank"],
  ["agent", "Kill torchrun"],
  ["keeper", "Kill the keeper"],
  ["corrupt-snapshot", "Damage the newest snapshot"],
];
const OF_RANK = new Set(["kill", "crash", "raise", "hang", "stop", "oom"]);

/** @param {Job} job */
const held = (job) => job.state === "queued" && job.intent === "hold";
/** @param {Job} job whether it can go on from a snapshot that is chosen */
export const resumable = (job) => job.state === "failed" || job.state === "cancelled" || held(job);

/** @type {Action[]} */
const ACTIONS = [
  {
    button: "drain",
    question: "Drain this job?",
    consequence: "It saves a snapshot at the next step boundary, gives its slots back and waits in the queue, on hold, until you resume it.",
    yes: "Drain",
    offered: (job) => AT_WORK.has(job.state) && job.intent === "run",
    run: (job) => act(job.id, "drain"),
  },
  {
    button: "cancel",
    question: "Cancel this job?",
    consequence: "It is stopped for good. Its logs and snapshots stay, and it can be resumed from the newest snapshot later.",
    yes: "Cancel the job",
    offered: (job) => !ENDED.has(job.state) && job.intent !== "cancel",
    run: (job) => act(job.id, "cancel"),
  },
  {
    button: "resume",
    label: (job) => (job.state === "failed" ? "Retry" : "Resume"),
    question: "Resume this job?",
    consequence: "It goes back to the queue and trains on from its newest snapshot.",
    yes: "Resume",
    offered: resumable,
    run: (job) => act(job.id, "resume"),
  },
  {
    button: "priority",
    label: (job) => `Priority ${job.priority}`,
    question: "Which priority?",
    consequence: "Jobs with a higher one leave the queue first. One that runs already is not touched.",
    yes: "Set",
    fields: (job) => [field("Priority", "priority", h("input", { type: "number", min: -1000, max: 1000, step: 1, value: job.priority, required: true }))],
    offered: (job) => !ENDED.has(job.state),
    run: (job, chosen) => setPriority(job.id, Number(chosen.get("priority"))),
  },
  {
    button: "chaos",
    question: "Inject a fault?",
    consequence: "The fault is real: what has been trained since the newest snapshot is done again. It shows how this job recovers.",
    yes: "Inject the fault",
    fields: faultFields,
    offered: (job) => job.state === "running",
    run: (job, chosen) => injectFault(job.id, String(chosen.get("fault")), chosenRank(chosen)),
  },
  {
    button: "forget",
    question: "Delete this job?",
    consequence: "Its logs, metrics, snapshots and all else in its working folder are removed from the disk. This cannot be undone.",
    yes: "Delete for good",
    offered: (job) => ENDED.has(job.state),
    run: (job) => forget(job.id),
  },
];

export class Actions {
  #dialog = /** @type {HTMLDialogElement} */ (byId("confirm"));
  #form = /** @type {HTMLFormElement} */ (byId("confirm-form"));
  #yes = /** @type {HTMLButtonElement} */ (byId("confirm-yes"));
  /** @type {Job | null} */
  #job = null;
  /** @type {Action | null} */
  #asked = null;

  constructor() {
    for (const action of ACTIONS) if (action.button) byId(action.button).addEventListener("click", () => this.#ask(action));
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#do();
    });
    byId("confirm-no").addEventListener("click", () => this.#dialog.close());
    this.#dialog.addEventListener("close", () => (this.#asked = null));
  }

  /** @param {Job} job */
  show(job) {
    this.#job = job;
    for (const { button, label, offered } of ACTIONS) {
      if (!button) continue;
      byId(button).hidden = !offered(job);
      if (label) setText(byId(button), label(job));
    }
    /** @type {HTMLAnchorElement} */ (byId("clone")).href = `/submit?clone=${encodeURIComponent(job.id)}`;
    if (this.#asked && !this.#asked.offered(job)) this.#dialog.close();
  }

  /** @param {number} step of the snapshot to go back to */
  askResumeFrom(step) {
    this.#ask({
      question: `Go on from step ${count(step)}?`,
      consequence: "It goes back to the queue and trains on from this snapshot. Newer snapshots are set aside, and deleted once it has come past them again.",
      yes: "Go on from here",
      offered: resumable,
      run: (job) => resumeFrom(job.id, step),
    });
  }

  /** @param {Action} action */
  #ask(action) {
    if (!this.#job) return;
    this.#asked = action;
    setText(byId("confirm-question"), action.question);
    setText(byId("confirm-job"), this.#job.name);
    setText(byId("confirm-consequence"), action.consequence);
    byId("confirm-fields").replaceChildren(...(action.fields?.(this.#job) ?? []));
    setText(byId("confirm-error"), "");
    setText(this.#yes, action.yes);
    this.#dialog.showModal();
  }

  async #do() {
    if (!this.#asked || !this.#job) return;
    this.#yes.disabled = true;
    try {
      await this.#asked.run(this.#job, new FormData(this.#form));
      this.#dialog.close();
    } catch (error) {
      setText(byId("confirm-error"), error instanceof Error ? error.message : String(error));
    } finally {
      this.#yes.disabled = false;
    }
  }
}

/**
 * @param {string} label
 * @param {string} name
 * @param {HTMLElement} control
 */
function field(label, name, control) {
  control.setAttribute("name", name);
  return h("label", {}, label, control);
}

/** @param {Job} job */
function faultFields(job) {
  const faults = h("select", {}, ...FAULTS.map(([value, text]) => h("option", { value }, text)));
  const numbers = Array.from({ length: job.world_size ?? job.ranks.max }, (_, rank) => rank);
  const ranks = h("select", {}, h("option", { value: "" }, "any"), ...numbers.map((rank) => h("option", { value: rank }, String(rank))));
  const ofRank = field("Rank", "rank", ranks);
  faults.addEventListener("change", () => (ofRank.hidden = !OF_RANK.has(/** @type {HTMLSelectElement} */ (faults).value)));
  return [field("Fault", "fault", faults), ofRank];
}

/** @param {FormData} chosen */
function chosenRank(chosen) {
  const rank = String(chosen.get("rank"));
  return rank === "" || !OF_RANK.has(String(chosen.get("fault"))) ? null : Number(rank);
}
