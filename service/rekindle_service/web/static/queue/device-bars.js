/**
 * The slots of this machine as one bar for each kind of device: how much each job holds, what is free, what is unusable.
 *
 * @typedef {{key: string, state: string, slots: Slot[], text: string, title: string, job: string | null}} Part
 *
 * @import { DevicePublic as Slot, Devices, OwnerShare, Queue } from "../shared/api-types.d.ts"
 */
import { call, filterUrl, jobUrl } from "../shared/api.js";
import { byId, h, KeyedChildren, patchChildren, setText } from "../shared/dom.js";
import { count, counted, percent } from "../shared/format.js";
import { setFill } from "../shared/job-state.js";
import { otherJobs, slotText, topologySentence } from "../shared/slots.js";

/** @type {KeyedChildren<{kind: string, slots: Slot[], links: Devices["links"]}, KindView>} */
const views = new KeyedChildren(byId("slots"), ({ kind }) => kind, ({ kind }) => new KindView(kind));

/** @param {Devices} devices */
export function showDevices({ items, links }) {
  const kinds = [...new Set(items.map(({ device }) => device))];
  views.show(kinds.map((kind) => ({ kind, slots: items.filter(({ device }) => device === kind), links })));
}

/** Slots with the same holder are one part; each is as wide as its number of slots. @param {Slot[]} slots @returns {Part[]} */
function partsOf(slots) {
  /** @type {Map<string, Part>} */
  const parts = new Map();
  for (const slot of slots) {
    const part = partOf(slot);
    const known = parts.get(part.key);
    if (known) known.slots.push(slot);
    else parts.set(part.key, part);
  }
  return [...parts.values()].sort((one, other) => Number(one.key === "free") - Number(other.key === "free"));
}

/** @param {Slot} slot @returns {Part} */
function partOf(slot) {
  const { job, jobs, held, job_name: name, job_state: state, unusable } = slot;
  const text = job ? `${name ?? job}${otherJobs(slot)}` : slotText(slot);
  if (held) return { key: `job ${jobs.join()}`, state: state ?? "running", slots: [slot], text, title: text, job };
  if (unusable) return { key: `unusable ${unusable}`, state: "failed", slots: [slot], text, title: unusable, job: null };
  return { key: "free", state: "free", slots: [slot], text, title: text, job: null };
}

class KindView {
  #title = h("p", { class: "slots-title" });
  #bar = h("ul", { class: "slot-bar" });
  #topology = h("p", { class: "topology" });
  /** @type {KeyedChildren<Part, PartView>} */
  #parts = new KeyedChildren(this.#bar, ({ key }) => key, () => new PartView());
  node;

  /** @param {string} kind */
  constructor(kind) {
    this.#bar.setAttribute("aria-label", `${kind} slots`);
    this.node = h("div", { class: "slot-kind", "data-device": kind }, this.#title, this.#bar, this.#topology);
  }

  /** @param {{kind: string, slots: Slot[], links: Devices["links"]}} devices */
  update({ kind, slots, links }) {
    const models = [...new Set(slots.map(({ title }) => title))];
    const name = kind === "cpu" ? `${slots.length} CPU slots` : `${slots.length} × ${models.join(", ")}`;
    setText(this.#title, `${name}: ${slots.filter(({ held }) => held).length} in use`);
    setText(this.#topology, topologySentence(slots.map((slot) => slot.name), links));
    this.#parts.show(partsOf(slots));
  }
}

class PartView {
  #link = h("a", { class: "holder" });
  node = h("li", { class: "part" }, this.#link);

  /** @param {Part} part */
  update({ state, slots, text, title, job }) {
    this.node.dataset.state = state;
    this.node.style.flexGrow = String(slots.length);
    this.node.title = `${slots.map(({ name }) => name).join(", ")}: ${title}`;
    setText(this.#link, `${text} · ${slots.length}`);
    if (job) this.#link.href = jobUrl(job);
    else this.#link.removeAttribute("href");
  }
}

// --- fair share: What each owner has used, holds and may use.

const HOUR = 3600; // seconds

/** Returns what it shows. */
export async function showShares() {
  const queue = await call("GET /queue", { limit: 1 });
  byId("owners").hidden = !hasShares(queue);
  patchChildren(byId("owner-shares"), queue.owners.map(ownerRow));
  setText(byId("half-life"), `Slot-hours count half after ${counted(queue.half_life_days, "day")}. Who has used least starts first.`);
  return queue;
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
