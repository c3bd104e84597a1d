/**
 * The slots of this machine as a strip for each kind of device: which job holds each of them, and how they are connected.
 *
 * @import { DevicePublic as Slot, Devices } from "../shared/api-types.d.ts"
 */
import { jobUrl } from "../shared/api.js";
import { KeyedChildren, byId, h, setText } from "../shared/dom.js";
import { topologySentence } from "../shared/topology.js";

/** @type {KeyedChildren<{kind: string, slots: Slot[], links: Devices["links"]}, KindView>} */
const views = new KeyedChildren(byId("slots"), ({ kind }) => kind, ({ kind }) => new KindView(kind));

/** @param {Devices} devices */
export function showDevices({ items, links }) {
  const kinds = [...new Set(items.map(({ device }) => device))];
  views.show(kinds.map((kind) => ({ kind, slots: items.filter(({ device }) => device === kind), links })));
}

class KindView {
  #title = h("p", { class: "slots-title" });
  #list = h("ul", { class: "slots" });
  #topology = h("p", { class: "topology" });
  /** @type {KeyedChildren<Slot, SlotView>} */
  #slots = new KeyedChildren(this.#list, ({ name }) => name, (slot) => new SlotView(slot));
  node;

  /** @param {string} kind */
  constructor(kind) {
    this.#list.setAttribute("aria-label", `${kind} slots`);
    this.node = h("div", { class: "slot-kind", "data-device": kind }, this.#title, this.#list, this.#topology);
  }

  /** @param {{kind: string, slots: Slot[], links: Devices["links"]}} devices */
  update({ kind, slots, links }) {
    const models = [...new Set(slots.map(({ title }) => title))];
    setText(this.#title, kind === "cpu" ? `${slots.length} CPU slots` : `${slots.length} × ${models.join(", ")}`);
    setText(this.#topology, topologySentence(slots.map(({ name }) => name), links));
    this.#slots.show(slots);
  }
}

class SlotView {
  #holder = h("a", { class: "holder" });
  node;

  /** @param {Slot} slot */
  constructor({ name, title }) {
    this.node = h("li", { class: "slot", title }, h("span", { class: "slot-name" }, name), this.#holder);
  }

  /** @param {Slot} slot */
  update({ title, job, jobs, held, job_name: jobName, job_state: jobState, unusable, disabled }) {
    this.node.dataset.state = held ? (jobState ?? "running") : unusable ? "failed" : "free";
    this.node.title = unusable ? `${title}: ${unusable}` : title;
    const others = jobs.length > 1 ? ` and ${jobs.length - 1} more` : "";
    const idle = !unusable ? "free" : disabled ? "disabled" : "in use by others";
    setText(this.#holder, job ? `${jobName ?? job}${others}` : held ? "somebody's job" : idle);
    if (job) this.#holder.href = jobUrl(job);
    else this.#holder.removeAttribute("href");
  }
}
