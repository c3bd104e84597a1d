/** The snapshots that the job could go on from, newest first, what can be done with each, and how often they are taken. */
import { resumable } from "./actions.js";
import { everySecond } from "./clock.js";
import { byId, h, setText } from "./dom.js";
import { ago, bytes, count, localTime } from "./format.js";
import { pin, snapshotFile } from "./job-api.js";

/** @typedef {import("./api.js").Snapshot} Snapshot */

export class SnapshotList {
  #jobId;
  #onResume;
  #onChange;
  /** @type {Snapshot[]} */
  #items = [];
  /** @type {{item: Snapshot, node: HTMLElement}[]} */
  #times = [];
  #resumable = false;

  /**
   * @param {string} jobId
   * @param {(step: number) => void} onResume told the step to go on from
   * @param {() => void} onChange a pin was set or taken off
   */
  constructor(jobId, onResume, onChange) {
    this.#jobId = jobId;
    this.#onResume = onResume;
    this.#onChange = onChange;
    everySecond(() => this.#times.forEach(({ item, node }) => setText(node, ago(item.created_at))));
  }

  /** @param {import("./api.js").Job} job */
  setJob(job) {
    if (this.#resumable === resumable(job)) return;
    this.#resumable = resumable(job);
    this.#draw();
  }

  /** @param {Awaited<ReturnType<typeof import("./api.js").readSnapshots>>} taken */
  show({ items, cadence }) {
    setText(byId("snapshots-cadence"), cadence === null ? "" : `Taken ${cadence}.`);
    byId("snapshots-cadence").hidden = cadence === null;
    byId("snapshots-empty").hidden = items.length > 0;
    this.#items = items;
    this.#draw();
  }

  #draw() {
    this.#times = this.#items.map((item) => ({ item, node: h("time", { datetime: item.created_at, title: localTime(item.created_at) }, ago(item.created_at)) }));
    const focused = document.activeElement?.getAttribute("data-focus");
    byId("snapshots").replaceChildren(...this.#times.map(({ item, node }) => this.#item(item, node)));
    if (focused) /** @type {HTMLElement | null} */ (byId("snapshots").querySelector(`[data-focus="${CSS.escape(focused)}"]`))?.focus();
  }

  /**
   * @param {Snapshot} item
   * @param {HTMLElement} time
   */
  #item(item, time) {
    const { step, epoch, world_size: ranks, verified, best, score, pinned } = item;
    const goodness = score === null ? "best" : `best (${Number(score.toPrecision(6))})`;
    const marks = [verified ? "verified" : h("span", { class: "late" }, "damaged"), ...(best ? [`, ${goodness}`] : []), ...(pinned ? [", pinned"] : [])];
    const facts = [...(epoch === null ? [] : [`epoch ${count(epoch)}`]), `${count(ranks)} ${ranks === 1 ? "rank" : "ranks"}`, bytes(item.bytes)];
    return h(
      "li",
      {},
      h("div", { class: "snapshot-head" }, h("strong", {}, `Step ${count(step)}`), h("span", { class: "snapshot-marks" }, ...marks)),
      h("p", { class: "muted" }, `${facts.join(" · ")} · `, time),
      h(
        "div",
        { class: "links" },
        this.#resumable && verified && this.#button(`resume-${step}`, "Go on from here", `Go on from step ${step}`, () => this.#onResume(step)),
        h("a", { href: snapshotFile(this.#jobId, step), download: true, "aria-label": `Download the snapshot of step ${step}` }, "Download"),
        this.#button(`pin-${step}`, pinned ? "Unpin" : "Pin", `${pinned ? "Unpin" : "Pin"} the snapshot of step ${step}`, () => void this.#pin(step, !pinned)),
      ),
    );
  }

  /**
   * @param {string} focus
   * @param {string} text
   * @param {string} label
   * @param {() => void} onclick
   */
  #button(focus, text, label, onclick) {
    return h("button", { type: "button", class: "link", "aria-label": label, "data-focus": focus, onclick }, text);
  }

  /**
   * @param {number} step
   * @param {boolean} pinned
   */
  async #pin(step, pinned) {
    setText(byId("snapshots-error"), "");
    try {
      await pin(this.#jobId, step, pinned);
    } catch (error) {
      setText(byId("snapshots-error"), error instanceof Error ? error.message : String(error));
    }
    this.#onChange();
  }
}
