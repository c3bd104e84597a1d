/** Where a living rank is right now: the Python stacks of its threads, in a dialog. */
import { readStack } from "./api.js";
import { byId, setText } from "./dom.js";

export class StackView {
  #jobId;
  #rank;
  #dialog = /** @type {HTMLDialogElement} */ (byId("stack"));
  #ask = byId("stack-ask");
  #asked = 0;

  /**
   * @param {string} jobId
   * @param {() => number} rank the one whose log is shown
   */
  constructor(jobId, rank) {
    this.#jobId = jobId;
    this.#rank = rank;
    this.#ask.addEventListener("click", () => this.open(this.#rank()));
  }

  /** @param {import("./api.js").Job} job */
  show(job) {
    this.#ask.hidden = job.state !== "running";
  }

  /** @param {number} rank */
  async open(rank) {
    const asked = ++this.#asked;
    setText(byId("stack-title"), `Python stacks of rank ${rank}`);
    setText(byId("stack-text"), "Asking the rank …");
    this.#dialog.showModal();
    const told = await readStack(this.#jobId, rank).catch((error) => (error instanceof Error ? error.message : String(error)));
    if (asked === this.#asked) setText(byId("stack-text"), told);
  }
}
