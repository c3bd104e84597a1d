/**
 * The snapshots as marks on the axis. Each opens a menu: resume or clone from here, download.
 *
 * @import { SnapshotPublic as Snapshot } from "../../shared/api-types.d.ts"
 * @import { Scale } from "../../charts/chart-frame.js"
 */
import { place } from "../../charts/axis-surface.js";
import { urlOf } from "../../shared/api.js";
import { KeyedChildren, byId, h, setText } from "../../shared/dom.js";
import { bytes, count, counted, localTime } from "../../shared/format.js";
import { secondsOf } from "./axis-model.js";

export class SnapshotMarks {
  #jobId;
  #onResume;
  #menu = byId("snapshot-menu");
  #row = byId("snapshot-row");
  /** @type {KeyedChildren<Snapshot, Mark>} */
  #marks = new KeyedChildren(byId("snapshot-marks"), ({ step }) => step, () => new Mark((mark) => this.#open(mark)));
  #isResumable = false;
  /** @type {Mark | null} */
  #opened = null;

  /** @param {string} jobId @param {(step: number) => void} onResume */
  constructor(jobId, onResume) {
    this.#jobId = jobId;
    this.#onResume = onResume;
    this.#menu.addEventListener("toggle", (event) => {
      if (/** @type {ToggleEvent} */ (event).newState === "closed") this.#opened?.node.focus({ preventScroll: true });
    });
  }

  /** @param {Snapshot[]} snapshots latest first @param {boolean} isResumable the job can be resumed from one of them */
  show(snapshots, isResumable) {
    const isChanged = this.#isResumable !== isResumable;
    this.#isResumable = isResumable;
    if (isChanged && this.#opened?.snapshot && this.#menu.matches(":popover-open")) byId("snapshot-menu-actions").replaceChildren(...this.#actions(this.#opened.snapshot));
    this.#row.hidden = !snapshots.length;
    this.#marks.show([...snapshots].reverse());
  }

  /** @param {Scale} scale */
  draw(scale) {
    for (const mark of this.#marks.views.values()) mark.draw(scale);
  }

  /** @param {Mark} mark */
  #open(mark) {
    const { snapshot, node } = mark;
    if (!snapshot) return;
    this.#opened = mark;
    setText(byId("snapshot-menu-title"), `Snapshot of step ${count(snapshot.step)}`);
    setText(byId("snapshot-menu-facts"), factsOf(snapshot));
    byId("snapshot-menu-actions").replaceChildren(...this.#actions(snapshot));
    const { left, top, bottom } = node.getBoundingClientRect();
    this.#menu.showPopover();
    this.#menu.style.left = `${Math.max(8, Math.min(left - 16, document.documentElement.clientWidth - this.#menu.offsetWidth - 8))}px`;
    const fits = bottom + 6 + this.#menu.offsetHeight <= document.documentElement.clientHeight;
    this.#menu.style.top = `${fits ? bottom + 6 : Math.max(8, top - 6 - this.#menu.offsetHeight)}px`;
    /** @type {HTMLElement | null} */ (this.#menu.querySelector("button, a"))?.focus();
  }

  /** @param {Snapshot} snapshot */
  #actions({ step, verified }) {
    const resume = () => {
      this.#opened = null;
      this.#menu.hidePopover();
      this.#onResume(step);
    };
    return [
      ...(this.#isResumable && verified ? [h("button", { type: "button", class: "primary", onclick: resume }, "Resume from here")] : []),
      ...(this.#isResumable && verified ? [h("a", { class: "button", href: `/submit?clone=${encodeURIComponent(this.#jobId)}&step=${step}` }, "Clone from here")] : []),
      h("a", { class: "button", href: urlOf("GET /jobs/{job_id}/snapshots/{step}/files.zip", { job_id: this.#jobId, step }), download: true }, "Download"),
    ];
  }
}

class Mark {
  node;
  /** @type {Snapshot | null} */
  snapshot = null;

  /** @param {(mark: Mark) => void} onOpen */
  constructor(onOpen) {
    this.node = h("button", { type: "button", class: "snapshot-mark", "aria-haspopup": "dialog", onclick: () => onOpen(this) });
  }

  /** @param {Snapshot} snapshot */
  update(snapshot) {
    this.snapshot = snapshot;
    const label = `Snapshot of step ${count(snapshot.step)}: ${factsOf(snapshot)}`;
    this.node.title = label;
    this.node.setAttribute("aria-label", label);
    this.node.dataset.mark = snapshot.verified ? (snapshot.best ? "best" : "") : "damaged";
  }

  /** @param {Scale} scale */
  draw(scale) {
    if (this.snapshot) place(this.node, scale, secondsOf(this.snapshot.created_at));
  }
}

/** @param {Snapshot} snapshot */
function factsOf({ epoch, world_size: ranks, bytes: size, created_at: created, verified, best, pinned, mirrored }) {
  const facts = [verified ? "verified" : "damaged", best && "best", pinned && "pinned", mirrored && "off the box", epoch !== null && `epoch ${count(epoch)}`];
  return [...facts, counted(ranks, "rank"), bytes(size), localTime(created)].filter(Boolean).join(" · ");
}
