/**
 * The jobs that wait, next to start first, with the reason and the estimate of each; and what each owner has used.
 *
 * @import { Queue, QueuedJob, OwnerShare } from "../shared/api-types.d.ts"
 */
import { call, jobUrl } from "../shared/api.js";
import { byId, h, patchChildren, setText } from "../shared/dom.js";
import { NONE, count, counted, percent, startTime, times } from "../shared/format.js";
import { setFill } from "../shared/job-state.js";

const FEW = 5;
const MANY = 200; // what the server computes positions for
const HOUR = 3600; // seconds

let isWhole = false;
/** Called when more or fewer are to be shown. */
let onChange = () => {};
byId("waiting-more").addEventListener("click", () => {
  isWhole = !isWhole;
  onChange();
});

/** @param {() => void} refresh */
export const onWaitingListChange = (refresh) => void (onChange = refresh);

/** @param {string | null} owner only the jobs of this one, if not empty @returns {Promise<string[]>} all owners */
export async function showWaiting(owner) {
  const queue = await call("GET /queue", { owner, limit: isWhole ? MANY : FEW });
  byId("waiting").hidden = queue.queued === 0 && !hasShares(queue);
  byId("waiting-table").hidden = queue.items.length === 0;
  patchChildren(byId("waiting-jobs"), queue.items.map(jobRow));
  showMore(queue);
  byId("owners").hidden = !hasShares(queue);
  patchChildren(byId("owner-shares"), queue.owners.map(ownerRow));
  setText(byId("half-life"), `Slot-hours count half after ${counted(queue.half_life_days, "day")}. Who has used least starts first.`);
  return queue.owners.map((each) => each.owner);
}

/** Shares say nothing where only one person uses the machine. @param {Queue} queue */
const hasShares = ({ owners }) => owners.length > 1 || owners.some(({ max_slots: slots, max_queued: queued }) => slots !== null || queued !== null);

/** @param {Queue} queue */
function showMore({ items, next, queued }) {
  const button = byId("waiting-more");
  button.hidden = next === null && items.length <= FEW;
  setText(button, isWhole ? "Show fewer" : `Show ${queued > MANY ? `the first ${MANY}` : "all"} of ${count(queued)}`);
}

/** @param {QueuedJob} job */
function jobRow(job) {
  const slots = job.slots ? `${job.slots} ${job.device.split(":")[0]}` : job.device;
  return h(
    "tr",
    {},
    h("td", { class: "number", "data-label": "Position" }, job.position === null ? NONE : String(job.position)),
    h("th", { scope: "row" }, h("a", { href: jobUrl(job.job), "data-focus": `waiting-${job.job}` }, h("bdi", {}, job.name)), h("span", { class: "under" }, ` #${job.number}`)),
    h("td", { class: "owner", title: job.owner, "data-label": "Owner" }, job.owner),
    h("td", { class: "number", "data-label": "Priority" }, String(job.priority)),
    h("td", { class: "slots-wanted", "data-label": "Slots" }, slots),
    h("td", { class: "starts", "data-label": "Starts" }, startTime(job.estimated_start_at)),
    h("td", { class: "note" }, h("bdi", {}, job.reason), preemptedNote(job)),
  );
}

/** @param {QueuedJob} job */
const preemptedNote = ({ preemptions }) => preemptions > 0 && h("span", { class: "under" }, `preempted ${times(preemptions)}`);

/** @param {OwnerShare} owner */
function ownerRow({ owner, share, slot_seconds: used, slots, running, queued, max_slots: maxSlots, max_queued: maxQueued }) {
  const fill = h("span");
  setFill(fill, share);
  const limited = (/** @type {number} */ value, /** @type {number | null} */ limit) => (limit === null ? String(value) : `${value} of ${count(limit)}`);
  return h(
    "tr",
    {},
    h("th", { scope: "row", class: "owner" }, h("a", { href: `/?owner=${encodeURIComponent(owner)}`, "data-focus": `owner-${owner}` }, h("bdi", {}, owner))),
    h("td", { class: "share" }, h("span", {}, percent(share)), h("div", { class: "bar", "aria-hidden": "true" }, fill)),
    h("td", { class: "number", "data-label": "Slot-hours" }, (used / HOUR).toFixed(2)),
    h("td", { class: "number", "data-label": "Slots" }, limited(slots, maxSlots)),
    h("td", { class: "number minor", "data-label": "Running" }, count(running)),
    h("td", { class: "number", "data-label": "Queued" }, limited(queued, maxQueued)),
  );
}
