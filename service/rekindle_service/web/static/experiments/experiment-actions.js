/**
 * What can be done to an experiment as a whole: cancel, resume what has failed, delete. Each is confirmed first.
 *
 * @import { ExperimentSummary } from "../shared/api-types.d.ts"
 * @import { ConfirmDialog } from "../shared/confirm-dialog.js"
 * @typedef {object} ExperimentAction
 * @property {string} verb
 * @property {string} consequence
 * @property {(experiment: ExperimentSummary) => number} jobs how many of its jobs this concerns; 0: it is not possible
 * @property {(experiment_id: string) => Promise<unknown>} run
 */
import { mayChange, me } from "../shared/account.js";
import { call } from "../shared/api.js";
import { h } from "../shared/dom.js";
import { counted } from "../shared/format.js";
import { hasEnded } from "../shared/job-state.js";

/** @param {ExperimentSummary} experiment */
const active = ({ states }) => Object.entries(states).reduce((sum, [state, count]) => sum + (hasEnded({ state }) ? 0 : count), 0);

/** By the name in the markup. @type {Record<string, ExperimentAction>} */
const ACTIONS = {
  resume: {
    verb: "Re-run failed",
    consequence: "The failed jobs return to the queue and continue from their latest snapshots; a job without a snapshot starts from the beginning.",
    jobs: ({ states }) => states.failed ?? 0,
    run: (id) => call("POST /experiments/{experiment_id}/resume", { experiment_id: id }),
  },
  cancel: {
    verb: "Cancel",
    consequence: "All jobs that have not ended are cancelled. Their logs and snapshots are kept.",
    jobs: active,
    run: (id) => call("POST /experiments/{experiment_id}/cancel", { experiment_id: id }),
  },
  delete: {
    verb: "Delete",
    consequence: "The table and all jobs with their logs, metrics and snapshots are deleted from disk. This cannot be undone.",
    jobs: (experiment) => (active(experiment) ? 0 : experiment.jobs || 1),
    run: (id) => call("DELETE /experiments/{experiment_id}", { experiment_id: id }),
  },
};

export class ExperimentActions {
  #dialog;
  /** @type {Map<string, ExperimentSummary>} */
  #shown = new Map();
  #onDone;

  /**
   * @param {HTMLElement} container of the buttons @param {ConfirmDialog} dialog of the page
   * @param {(action: string) => void} onDone what was done: "delete"
   */
  constructor(container, dialog, onDone) {
    this.#dialog = dialog;
    this.#onDone = onDone;
    void me.then(() => this.#hideForbidden(container), () => undefined);
    container.addEventListener("click", ({ target }) => {
      const button = target instanceof Element ? /** @type {HTMLElement | null} */ (target.closest("button[data-action]")) : null;
      const experiment = this.#shown.get(button?.dataset.experiment ?? "");
      if (button && experiment) this.#confirm(button.dataset.action ?? "", experiment);
    });
  }

  /** The buttons of an experiment, those that are possible now. @param {ExperimentSummary} experiment */
  buttons(experiment) {
    const { id, name, owner } = experiment;
    this.#shown.set(id, experiment);
    if (!mayChange(owner)) return [];
    const possible = Object.entries(ACTIONS).filter(([, { jobs }]) => jobs(experiment) > 0);
    return possible.map(([action, { verb }]) =>
      h("button", { type: "button", "data-action": action, "data-experiment": id, "data-focus": `${action}-${id}`, "aria-label": `${verb} ${name}` }, verb),
    );
  }

  /** What was shown before it was known whose page this is. @param {HTMLElement} container */
  #hideForbidden(container) {
    const buttons = /** @type {NodeListOf<HTMLElement>} */ (container.querySelectorAll("button[data-experiment]"));
    for (const button of buttons) if (!mayChange(this.#shown.get(button.dataset.experiment ?? "")?.owner ?? null)) button.remove();
  }

  /** @param {string} action @param {ExperimentSummary} experiment */
  #confirm(action, experiment) {
    const { verb, consequence, jobs, run } = ACTIONS[action];
    this.#dialog.open({
      title: `${verb}: ${counted(jobs(experiment), "job")}?`,
      jobs: [experiment],
      consequence,
      yes: verb,
      run: async () => {
        await run(experiment.id);
        this.#onDone(action);
      },
    });
  }
}
