/** The slots of this machine as a strip for each kind of device: who holds each of them, and how they are joined. */
import { arrange, h, setText } from "./dom.js";
import { topologySentence } from "./topology.js";

/**
 * @typedef {object} Slot
 * @property {string} name
 * @property {string} device "cpu" or "cuda"
 * @property {string} title
 * @property {string | null} job
 * @property {string | null} job_name
 * @property {string | null} job_state
 */

export class DeviceStrip {
  #place;
  /** @type {Map<string, {node: HTMLElement, holder: HTMLElement}>} */
  #slots = new Map();
  /** @type {Map<string, {node: HTMLElement, list: HTMLElement, title: HTMLElement, topology: HTMLElement}>} */
  #kinds = new Map();

  /** @param {HTMLElement} place */
  constructor(place) {
    this.#place = place;
  }

  /**
   * @param {Slot[]} slots
   * @param {import("./topology.js").Link[]} links
   */
  show(slots, links) {
    const kinds = [...new Set(slots.map(({ device }) => device))];
    arrange(this.#place, kinds.map((kind) => this.#showKind(kind, slots.filter(({ device }) => device === kind), links)));
  }

  /**
   * @param {string} kind
   * @param {Slot[]} slots
   * @param {import("./topology.js").Link[]} links
   */
  #showKind(kind, slots, links) {
    const shown = this.#kinds.get(kind) ?? this.#addKind(kind);
    const models = [...new Set(slots.map(({ title }) => title))];
    setText(shown.title, kind === "cpu" ? `${slots.length} CPU slots` : `${slots.length} × ${models.join(", ")}`);
    setText(shown.topology, topologySentence(slots.map(({ name }) => name), links));
    arrange(shown.list, slots.map((slot) => this.#update(slot)));
    return shown.node;
  }

  /** @param {string} kind */
  #addKind(kind) {
    const list = h("ul", { class: "slots", "aria-label": `${kind} slots` });
    const title = h("p", { class: "slots-title" });
    const topology = h("p", { class: "topology" });
    const node = h("div", { class: "slot-kind", "data-device": kind }, title, list, topology);
    const shown = { node, list, title, topology };
    this.#kinds.set(kind, shown);
    return shown;
  }

  /** @param {Slot} slot */
  #update(slot) {
    const { node, holder } = this.#slots.get(slot.name) ?? this.#add(slot);
    node.dataset.state = slot.job ? (slot.job_state ?? "running") : "free";
    setText(holder, slot.job ? (slot.job_name ?? slot.job) : "free");
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
