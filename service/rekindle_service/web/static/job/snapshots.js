/**
 * The snapshots of a job, latest first, with what can be done with each, and how often they are taken.
 *
 * @import { CheckpointPublic as Checkpoint, JobPublic as Job, SnapshotList as Listing, SnapshotPublic as Snapshot } from "../shared/api-types.d.ts"
 */
import { call, messageOf, urlOf } from "../shared/api.js";
import { byId, h, patchChildren, setText } from "../shared/dom.js";
import { ago, bytes, count, counted, localTime } from "../shared/format.js";
import { canResumeFrom } from "../shared/job-actions.js";
import { everySecond } from "../shared/timing.js";

export class SnapshotList {
  #jobId;
  #onResume;
  #onChange;
  /** @type {Snapshot[]} */
  #items = [];
  #resumable = false;
  /** The script has written checkpoints, which are listed below. */
  #hasOwn = false;

  /**
   * @param {string} jobId @param {(step: number) => void} onResume
   * @param {() => void} onChange a snapshot was pinned or unpinned
   */
  constructor(jobId, onResume, onChange) {
    this.#jobId = jobId;
    this.#onResume = onResume;
    this.#onChange = onChange;
  }

  /** @param {Job} job */
  setJob(job) {
    byId("snapshots-empty").hidden = this.#items.length > 0 || job.checkpoints.length > 0;
    this.#hasOwn = job.checkpoints.length > 0;
    if (this.#resumable === canResumeFrom(job)) return;
    this.#resumable = canResumeFrom(job);
    this.#draw();
  }

  /** @param {Listing} listing */
  show({ items, policy, copies }) {
    const facts = [policy !== null && `Taken ${policy}.`, copies !== null && `Copied to ${copies}.`].filter((each) => each);
    setText(byId("snapshots-policy"), facts.join(" "));
    byId("snapshots-policy").hidden = facts.length === 0;
    byId("snapshots-empty").hidden = items.length > 0 || this.#hasOwn;
    this.#items = items;
    this.#draw();
  }

  #draw() {
    patchChildren(byId("snapshots"), this.#items.map((item) => this.#item(item)));
  }

  /** @param {Snapshot} item */
  #item({ step, epoch, world_size: ranks, bytes: size, created_at: createdAt, verified, best, score, pinned, mirrored }) {
    const bestText = score === null ? "best" : `best (${Number(score.toPrecision(6))})`;
    const marks = [verified ? "verified" : h("span", { class: "late" }, "damaged"), ...(best ? [`, ${bestText}`] : []), ...(pinned ? [", pinned"] : []), ...(mirrored ? [", off the box"] : [])];
    const facts = [...(epoch === null ? [] : [`epoch ${count(epoch)}`]), counted(ranks, "rank"), bytes(size)];
    const download = urlOf("GET /jobs/{job_id}/snapshots/{step}/files.zip", { job_id: this.#jobId, step });
    const pin = pinned ? "Unpin" : "Pin";
    return h(
      "li",
      {},
      h("div", { class: "snapshot-head" }, h("strong", {}, `Step ${count(step)}`), h("span", {}, ...marks)),
      h("p", { class: "muted" }, `${facts.join(" · ")} · `, timeNode(createdAt)),
      h(
        "div",
        { class: "links" },
        this.#resumable && verified && button(`resume-${step}`, "Resume from here", `Resume from step ${step}`, () => this.#onResume(step)),
        h("a", { href: download, download: true, "aria-label": `Download the snapshot of step ${step}` }, "Download"),
        button(`pin-${step}`, pin, `${pin} the snapshot of step ${step}`, () => void this.#pin(step, !pinned)),
      ),
    );
  }

  /** @param {number} step @param {boolean} pinned */
  async #pin(step, pinned) {
    setText(byId("snapshots-error"), "");
    const route = pinned ? "PUT /jobs/{job_id}/snapshots/{step}/pin" : "DELETE /jobs/{job_id}/snapshots/{step}/pin";
    await call(route, { job_id: this.#jobId, step }).catch((error) => setText(byId("snapshots-error"), messageOf(error)));
    this.#onChange();
  }
}

/** @param {string | null} at */
const timeNode = (at) => h("time", { datetime: at ?? "", title: localTime(at) }, ago(at));

/** @param {string} focus @param {string} text @param {string} label @param {() => void} onclick */
function button(focus, text, label, onclick) {
  return h("button", { type: "button", class: "link", "aria-label": label, "data-focus": focus, onclick }, text);
}

// --- checkpoints: The checkpoints that the script itself writes, latest first, as far as they are learned.

everySecond(() => byId("snapshots-panel").querySelectorAll("time").forEach((node) => setText(node, ago(node.dateTime))));

/** @param {Job} job @param {(path: string) => void} onResume */
export function showCheckpoints(job, onResume) {
  byId("checkpoints-card").hidden = job.checkpoints.length === 0;
  patchChildren(byId("checkpoints"), job.checkpoints.map((each) => item(job, each, onResume)));
}

/** @param {Job} job @param {Checkpoint} checkpoint @param {(path: string) => void} onResume */
function item(job, { path, kind, bytes: size, written_at: writtenAt, attempt, complete, loaded, step, epoch, estimated }, onResume) {
  const about = estimated ? "about " : "";
  const position = [...(epoch === null ? [] : [`${about}epoch ${count(epoch)}`]), ...(step === null ? [] : [`${about}step ${count(step)}`])];
  const facts = [...position, bytes(size), kind, ...(attempt ? [`attempt ${attempt}`] : []), ...(loaded ? [`loaded by attempt ${loaded}`] : [])];
  return h(
    "li",
    {},
    h("div", { class: "snapshot-head" }, h("bdi", {}, path), complete ? null : h("span", { class: "late" }, "incomplete")),
    h("p", { class: "muted" }, `${facts.join(" · ")} · `, timeNode(writtenAt)),
    h(
      "div",
      { class: "links" },
      complete && canResumeFrom(job) && button(`resume-${path}`, "Resume from here", `Resume from ${path}`, () => onResume(path)),
      !path.startsWith("/") && h("a", { href: urlOf("GET /jobs/{job_id}/checkpoint.zip", { job_id: job.id, path }), download: true, "aria-label": `Download ${path}` }, "Download"),
    ),
  );
}
