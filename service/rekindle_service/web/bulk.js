/** What can be done to all ticked jobs: one question, then one request for each job, and what came of them. */
import { act, changeJob, forget } from "./api.js";
import { byId, h, setText } from "./dom.js";

/**
 * @typedef {import("./api.js").Job} Job
 * @typedef {object} Deed
 * @property {string} button id of its button
 * @property {string} verb as in "Cancel 3 jobs?"
 * @property {string} done as in "3 jobs cancelled"
 * @property {string} consequence
 * @property {(job: Job) => boolean} fits
 * @property {(job: Job) => Promise<unknown>} run
 */

const ENDED = new Set(["succeeded", "failed", "cancelled"]);
const MOST_COMPARED = 8;

const dialog = () => /** @type {HTMLDialogElement} */ (byId("bulk-confirm"));
const priority = () => /** @type {HTMLInputElement} */ (byId("bulk-priority-value"));

/** @type {Deed[]} */
const DEEDS = [
  {
    button: "bulk-hold",
    verb: "Hold",
    done: "held",
    consequence: "Waiting jobs stay in the queue until they are released. Running ones save a snapshot first and give their slots back.",
    fits: (job) => !ENDED.has(job.state) && job.intent === "run",
    run: (job) => act(job.id, "drain"),
  },
  {
    button: "bulk-release",
    verb: "Release",
    done: "released",
    consequence: "They start as soon as there are slots, from their newest snapshot where they have one.",
    fits: (job) => !ENDED.has(job.state) && (job.intent === "hold" || job.intent === "drain"),
    run: (job) => act(job.id, "resume"),
  },
  {
    button: "bulk-priority",
    verb: "Change the priority of",
    done: "changed",
    consequence: "Among waiting jobs a higher priority goes first. From −1000 to 1000; 0 is usual.",
    fits: (job) => !ENDED.has(job.state),
    run: (job) => changeJob(job.id, { priority: priority().valueAsNumber }),
  },
  {
    button: "bulk-cancel",
    verb: "Cancel",
    done: "cancelled",
    consequence: "They are stopped for good. Logs and snapshots stay, and each can be resumed later.",
    fits: (job) => !ENDED.has(job.state) && job.intent !== "cancel",
    run: (job) => act(job.id, "cancel"),
  },
  {
    button: "bulk-delete",
    verb: "Delete",
    done: "deleted",
    consequence: "Their logs, metrics, snapshots and all else in their working folders are removed from the disk. This cannot be undone.",
    fits: (job) => ENDED.has(job.state),
    run: (job) => forget(job.id),
  },
];

export class Bulk {
  /** @type {Job[]} */
  #chosen = [];
  /** @type {Deed | null} */
  #asked = null;
  /** @type {Set<string>} ids of the jobs that the question named: nothing is done to any other */
  #named = new Set();
  #changed;

  /** @param {() => void} changed called when something has been done */
  constructor(changed) {
    this.#changed = changed;
    for (const deed of DEEDS) byId(deed.button).addEventListener("click", () => this.#ask(deed));
    byId("bulk-form").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#carryOut();
    });
    byId("bulk-no").addEventListener("click", () => dialog().close());
  }

  /** @param {Job[]} chosen */
  show(chosen) {
    this.#chosen = chosen;
    byId("bulk").hidden = chosen.length === 0;
    setText(byId("bulk-count"), `${chosen.length} chosen`);
    for (const { button, fits } of DEEDS) /** @type {HTMLButtonElement} */ (byId(button)).disabled = !chosen.some(fits);
    const compare = byId("bulk-compare");
    const jobs = chosen.slice(0, MOST_COMPARED).map(({ id }) => encodeURIComponent(id));
    compare.setAttribute("href", `/compare?jobs=${jobs.join(",")}`);
    setText(compare, chosen.length > MOST_COMPARED ? `Compare the first ${MOST_COMPARED}` : "Compare");
  }

  /** @param {Deed} deed */
  #ask(deed) {
    this.#asked = deed;
    const fitting = this.#chosen.filter(deed.fits);
    this.#named = new Set(fitting.map(({ id }) => id));
    const passed = this.#chosen.length - fitting.length;
    setText(byId("bulk-question"), `${deed.verb} ${jobs(fitting.length)}?`);
    setText(byId("bulk-consequence"), deed.consequence);
    setText(byId("bulk-passed"), passed ? `Nothing is done to the ${passed} of them for which it makes no sense now.` : "");
    byId("bulk-names").replaceChildren(...fitting.map(({ number, name }) => h("li", {}, `#${number} `, h("bdi", {}, name))));
    byId("bulk-priority-field").hidden = deed.button !== "bulk-priority";
    priority().required = deed.button === "bulk-priority";
    setText(byId("bulk-yes"), `${deed.verb} ${jobs(fitting.length)}`);
    dialog().showModal();
  }

  async #carryOut() {
    const deed = this.#asked;
    if (!deed) return;
    const yes = /** @type {HTMLButtonElement} */ (byId("bulk-yes"));
    yes.disabled = true;
    const refusals = [];
    const fitting = this.#chosen.filter((job) => this.#named.has(job.id) && deed.fits(job));
    for (const job of fitting) {
      try {
        await deed.run(job);
      } catch (error) {
        refusals.push(`${job.name}: ${error instanceof Error ? error.message : error}`);
      }
    }
    yes.disabled = false;
    dialog().close();
    setText(byId("bulk-result"), [`${jobs(fitting.length - refusals.length)} ${deed.done}`, ...refusals].join(" · "));
    this.#changed();
  }
}

/** @param {number} count */
const jobs = (count) => (count === 1 ? "1 job" : `${count} jobs`);
