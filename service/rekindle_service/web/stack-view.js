/** Where a living rank is right now: the Python stacks of its threads, in a dialog. */
import { readStack } from "./api.js";
import { byId, setText } from "./dom.js";

export class StackView {
  #jobId;
  #rank;
  #dialog = /** @type {HTMLDialogElement} */ (byId("stack"));
  #ask = byId("stack-ask");

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
    setText(byId("stack-title"), `Python stacks of rank ${rank}`);
    setText(byId("stack-text"), "Asking the rank …");
    this.#dialog.showModal();
    try {
      setText(byId("stack-text"), await readStack(this.#jobId, rank));
    } catch (error) {
      setText(byId("stack-text"), error instanceof Error ? error.message : String(error));
    }
  }
}
