/** The slots of this machine as a table: how busy each device is and which job has it. */
import { arrange, h, setText } from "./dom.js";
import { NONE, bytes } from "./format.js";

/** @typedef {import("./machine-page.js").DeviceUsage} DeviceUsage */
/** @typedef {import("./device-strip.js").Slot} Slot */

export class DeviceTable {
  #body;
  /** @type {Map<string, DeviceRow>} */
  #rows = new Map();

  /** @param {HTMLElement} body */
  constructor(body) {
    this.#body = body;
  }

  /**
   * @param {DeviceUsage[]} devices
   * @param {Map<string, Slot>} slots
   */
  show(devices, slots) {
    const rows = devices.map((device) => {
      const row = this.#rows.get(device.name) ?? new DeviceRow(device.name);
      this.#rows.set(device.name, row);
      row.update(device, slots.get(device.name));
      return row.node;
    });
    arrange(this.#body, rows);
    const isTold = devices.some(({ utilization_percent: use, memory_total_bytes: total }) => use !== null || total !== null);
    this.#body.closest("table")?.classList.toggle("plain", !isTold);
  }
}

class DeviceRow {
  #model = h("td");
  #use = new Share();
  #memory = new Share();
  #temperature = h("td", { class: "number figure" });
  #power = h("td", { class: "number figure" });
  #holder = h("a");
  #free = h("span", { class: "muted" });

  /** @param {string} name */
  constructor(name) {
    const held = h("td", {}, this.#holder, this.#free);
    this.node = h("tr", {}, h("th", { scope: "row" }, name), this.#model, this.#use.node, this.#memory.node, this.#temperature, this.#power, held);
  }

  /**
   * @param {DeviceUsage} device
   * @param {Slot | undefined} slot
   */
  update(device, slot) {
    const { memory_used_bytes: used, memory_total_bytes: total, utilization_percent: use } = device;
    setText(this.#model, device.model ?? (device.kind === "cpu" ? "CPU, room for a rank" : NONE));
    this.#use.set(use === null ? null : use / 100, use === null ? NONE : `${Math.round(use)} %`);
    this.#memory.set(used === null || !total ? null : used / total, total ? `${bytes(used)} of ${bytes(total)}` : NONE);
    setText(this.#temperature, device.temperature_celsius === null ? NONE : `${Math.round(device.temperature_celsius)} °C`);
    setText(this.#power, device.power_watts === null ? NONE : `${Math.round(device.power_watts)} W`);
    this.#holder.hidden = !device.held_by;
    setText(this.#free, device.held_by ? "" : "free");
    setText(this.#holder, slot?.job_name ?? device.held_by ?? "");
    if (device.held_by) this.#holder.setAttribute("href", `/jobs/${encodeURIComponent(device.held_by)}`);
  }
}

/** A share of something, as words and a bar. */
class Share {
  #words = h("span");
  #fill = h("span");
  #bar = h("div", { class: "bar", "aria-hidden": "true" }, this.#fill);
  node = h("td", { class: "figure" }, this.#words, this.#bar);

  /**
   * @param {number | null} share 0 to 1
   * @param {string} words
   */
  set(share, words) {
    setText(this.#words, words);
    this.#bar.hidden = share === null;
    this.#fill.style.width = `${Math.min(1, Math.max(0, share ?? 0)) * 100}%`;
  }
}
