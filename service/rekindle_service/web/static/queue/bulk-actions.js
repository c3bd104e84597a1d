/**
 * What can be done to all selected jobs: one question, then one request for each job, and the results.
 *
 * @import { JobPublic as Job } from "../shared/api-types.d.ts"
 * @typedef {import("../shared/job-actions.js").JobAction} BulkAction
 */
import { me } from "../shared/account.js";
import { MAX_COMPARED, compareUrl, messageOf } from "../shared/api.js";
import { ConfirmDialog } from "../shared/confirm-dialog.js";
import { byId, setText } from "../shared/dom.js";
import { counted } from "../shared/format.js";
import { ARCHIVE, CANCEL, DELETE, DRAIN, HOLD, NOTE, PRIORITY, RELEASE, SEEN, TAG } from "../shared/job-actions.js";

/** By the id of the button. @type {Record<string, BulkAction>} */
const ACTIONS = {
  "bulk-hold": HOLD,
  "bulk-drain": DRAIN,
  "bulk-release": RELEASE,
  "bulk-priority": PRIORITY,
  "bulk-tag": TAG,
  "bulk-note": NOTE,
  "bulk-seen": SEEN,
  "bulk-archive": ARCHIVE,
  "bulk-cancel": CANCEL,
  "bulk-delete": DELETE,
};

export class BulkActions {
  #dialog = new ConfirmDialog();
  /** @type {Job[]} */
  #selected = [];
  #onChange;

  /** @param {() => void} onChange called when something has been done */
  constructor(onChange) {
    this.#onChange = onChange;
    for (const [button, action] of Object.entries(ACTIONS)) byId(button).addEventListener("click", () => this.#confirm(action));
    void me.then(() => this.show(this.#selected), () => undefined);
  }

  /** @param {Job[]} selected */
  show(selected) {
    this.#selected = selected;
    byId("bulk").hidden = selected.length === 0;
    setText(byId("bulk-count"), `${selected.length} selected`);
    for (const [button, { possible }] of Object.entries(ACTIONS)) byId(button, HTMLButtonElement).disabled = !selected.some(possible);
    const compare = byId("bulk-compare", HTMLAnchorElement);
    compare.href = compareUrl(selected.map(({ id }) => id));
    setText(compare, selected.length > MAX_COMPARED ? `Compare the first ${MAX_COMPARED}` : "Compare");
  }

  /** @param {BulkAction} action */
  #confirm(action) {
    const jobs = this.#selected.filter(action.possible);
    const skipped = this.#selected.length - jobs.length;
    const title = `${action.verb} ${counted(jobs.length, "job")}`;
    this.#dialog.open({
      title: `${title}?`,
      jobs,
      consequence: action.consequence,
      note: skipped ? `${counted(skipped, "selected job is", "selected jobs are")} skipped: their state, or your permissions, do not allow it.` : "",
      fields: action.fields?.(null),
      yes: title,
      run: (chosen) => this.#run(action, new Set(jobs.map(({ id }) => id)), chosen),
    });
  }

  /**
   * @param {BulkAction} action @param {Set<string>} ids of the jobs that the question named @param {FormData} chosen
   */
  async #run(action, ids, chosen) {
    /** @type {string[]} */
    const errors = [];
    const jobs = this.#selected.filter((job) => ids.has(job.id) && action.possible(job));
    for (const job of jobs) await action.run(job, chosen).catch((error) => errors.push(`${job.name}: ${messageOf(error)}`));
    setText(byId("bulk-result"), [`${counted(jobs.length - errors.length, "job")} ${action.done}`, ...errors].join(" · "));
    this.#onChange();
  }
}
