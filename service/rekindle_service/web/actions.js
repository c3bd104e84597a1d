/** What can be asked of a job, each after a question in a dialog. */
import { act, forget } from "./api.js";
import { byId, setText } from "./dom.js";

/**
 * @typedef {import("./api.js").Job} Job
 * @typedef {object} Action
 * @property {string} button id of its button
 * @property {string} question
 * @property {string} consequence
 * @property {string} yes label of the button that does it
 * @property {(job: Job) => boolean} offered
 * @property {(job: Job) => Promise<unknown>} run
 */

const ENDED = new Set(["succeeded", "failed", "cancelled"]);
const AT_WORK = new Set(["starting", "running", "recovering"]);

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
    question: "Resume this job?",
    consequence: "It goes back to the queue and trains on from its newest snapshot.",
    yes: "Resume",
    offered: (job) => job.state === "failed" || job.state === "cancelled" || (job.state === "queued" && job.intent === "hold"),
    run: (job) => act(job.id, "resume"),
  },
  {
    button: "forget",
    question: "Delete this job?",
    consequence: "Its logs, metrics and snapshots are removed from the disk. This cannot be undone.",
    yes: "Delete for good",
    offered: (job) => ENDED.has(job.state),
    run: (job) => forget(job.id),
  },
];

export class Actions {
  #dialog = /** @type {HTMLDialogElement} */ (byId("confirm"));
  #yes = /** @type {HTMLButtonElement} */ (byId("confirm-yes"));
  /** @type {Job | null} */
  #job = null;
  /** @type {Action | null} */
  #asked = null;

  constructor() {
    for (const action of ACTIONS) byId(action.button).addEventListener("click", () => this.#ask(action));
    this.#yes.addEventListener("click", () => this.#do());
    byId("confirm-no").addEventListener("click", () => this.#dialog.close());
    this.#dialog.addEventListener("close", () => (this.#asked = null));
  }

  /** @param {Job} job */
  show(job) {
    this.#job = job;
    for (const action of ACTIONS) byId(action.button).hidden = !action.offered(job);
    if (this.#asked && !this.#asked.offered(job)) this.#dialog.close();
  }

  /** @param {Action} action */
  #ask(action) {
    this.#asked = action;
    setText(byId("confirm-question"), action.question);
    setText(byId("confirm-job"), this.#job?.name ?? "");
    setText(byId("confirm-consequence"), action.consequence);
    setText(byId("confirm-error"), "");
    setText(this.#yes, action.yes);
    this.#dialog.showModal();
  }

  async #do() {
    if (!this.#asked || !this.#job) return;
    this.#yes.disabled = true;
    try {
      await this.#asked.run(this.#job);
      this.#dialog.close();
    } catch (error) {
      setText(byId("confirm-error"), error instanceof Error ? error.message : String(error));
    } finally {
      this.#yes.disabled = false;
    }
  }
}
