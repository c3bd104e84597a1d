/**
 * What each owner has used, holds and may use.
 *
 * @import { Queue, OwnerShare } from "../shared/api-types.d.ts"
 */
import { call } from "../shared/api.js";
import { byId, h, patchChildren, setText } from "../shared/dom.js";
import { count, counted, percent } from "../shared/format.js";
import { setFill } from "../shared/job-state.js";
import { filterUrl } from "./filter-line.js";

const HOUR = 3600; // seconds

export async function showShares() {
  const queue = await call("GET /queue", { limit: 1 });
  byId("owners").hidden = !hasShares(queue);
  patchChildren(byId("owner-shares"), queue.owners.map(ownerRow));
  setText(byId("half-life"), `Slot-hours count half after ${counted(queue.half_life_days, "day")}. Who has used least starts first.`);
}

/** Shares say nothing where only one person uses the machine. @param {Queue} queue */
const hasShares = ({ owners }) => owners.length > 1 || owners.some(({ max_slots: slots, max_queued: queued }) => slots !== null || queued !== null);

/** @param {OwnerShare} owner */
function ownerRow({ owner, share, slot_seconds: used, slots, running, queued, max_slots: maxSlots, max_queued: maxQueued }) {
  const fill = h("span");
  setFill(fill, share);
  const limited = (/** @type {number} */ value, /** @type {number | null} */ limit) => (limit === null ? String(value) : `${value} of ${count(limit)}`);
  return h(
    "tr",
    {},
    h("th", { scope: "row", class: "owner" }, h("a", { href: filterUrl(`owner:${owner}`), "data-focus": `owner-${owner}` }, h("bdi", {}, owner))),
    h("td", { class: "share" }, h("span", {}, percent(share)), h("div", { class: "bar", "aria-hidden": "true" }, fill)),
    h("td", { class: "number", "data-label": "Slot-hours" }, (used / HOUR).toFixed(2)),
    h("td", { class: "number", "data-label": "Slots" }, limited(slots, maxSlots)),
    h("td", { class: "number minor", "data-label": "Running" }, count(running)),
    h("td", { class: "number", "data-label": "Queued" }, limited(queued, maxQueued)),
  );
}
