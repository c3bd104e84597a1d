/** The slots of this machine as a strip: who holds each of them. */
import { arrange, h, setText } from "./dom.js";

/**
 * @typedef {{name: string, job: string | null, title: string | null}} Slot
 */

export class DeviceStrip {
  #list;
  /** @type {Map<string, {node: HTMLElement, holder: HTMLElement}>} */
  #slots = new Map();

  /** @param {HTMLElement} list */
  constructor(list) {
    this.#list = list;
  }

  /**
   * @param {Slot[]} slots
   * @param {Map<string, import("./api.js").Job>} jobs that hold them
   */
  show(slots, jobs) {
    arrange(this.#list, slots.map((slot) => this.#update(slot, slot.job ? jobs.get(slot.job) : undefined)));
  }

  /**
   * @param {Slot} slot
   * @param {import("./api.js").Job | undefined} job
   */
  #update(slot, job) {
    const shown = this.#slots.get(slot.name) ?? this.#add(slot);
    const { node, holder } = shown;
    node.dataset.state = slot.job ? (job?.state ?? "running") : "free";
    setText(holder, slot.job ? (job?.name ?? slot.job) : "free");
    if (slot.job) holder.setAttribute("href", `/jobs/${encodeURIComponent(slot.job)}`);
    else holder.removeAttribute("href");
    return node;
  }

  /** @param {Slot} slot */
  #add(slot) {
    const holder = h("a", { class: "holder" });
    const node = h("li", { class: "slot", title: slot.title }, h("span", { class: "slot-name" }, slot.name), holder);
    const shown = { node, holder };
    this.#slots.set(slot.name, shown);
    return shown;
  }
}
