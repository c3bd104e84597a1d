/**
 * The slots of this machine as a table: the utilization of each device and which job holds it.
 *
 * @import { DevicePublic as Slot, MachinePublic as Machine } from "../shared/api-types.d.ts"
 * @typedef {Machine["devices"][number]} Device
 */
import { jobUrl } from "../shared/api.js";
import { KeyedChildren, byId, h, setText } from "../shared/dom.js";
import { NONE, bytes } from "../shared/format.js";
import { setFill } from "../shared/job-state.js";

const body = byId("devices");
/** @type {KeyedChildren<{device: Device, slot: Slot | undefined}, DeviceRow>} */
const rows = new KeyedChildren(body, ({ device }) => device.name, ({ device }) => new DeviceRow(device.name));

/** @param {Device[]} devices @param {Slot[]} slots */
export function showDevices(devices, slots) {
  rows.show(devices.map((device) => ({ device, slot: slots.find(({ name }) => name === device.name) })));
  const measured = devices.some(({ utilization_percent: use, memory_total_bytes: total }) => use !== null || total !== null);
  body.closest("table")?.classList.toggle("plain", !measured);
}

class DeviceRow {
  #model = h("td");
  #use = new BarCell();
  #memory = new BarCell();
  #temperature = h("td", { class: "number figure" });
  #power = h("td", { class: "number figure" });
  #holder = h("a");
  #free = h("span", { class: "muted" });

  /** @param {string} name */
  constructor(name) {
    const holder = h("td", {}, this.#holder, this.#free);
    this.node = h("tr", {}, h("th", { scope: "row" }, name), this.#model, this.#use.node, this.#memory.node, this.#temperature, this.#power, holder);
  }

  /** @param {{device: Device, slot: Slot | undefined}} item */
  update({ device, slot }) {
    const { memory_used_bytes: used, memory_total_bytes: total, utilization_percent: use, held_by: job } = device;
    setText(this.#model, device.model ?? (device.kind === "cpu" ? "CPU slot for one rank" : NONE));
    this.#use.set(use === null ? null : use / 100, use === null ? NONE : `${Math.round(use)} %`);
    this.#memory.set(used === null || !total ? null : used / total, total ? `${bytes(used)} of ${bytes(total)}` : NONE);
    setText(this.#temperature, device.temperature_celsius === null ? NONE : `${Math.round(device.temperature_celsius)} °C`);
    setText(this.#power, device.power_watts === null ? NONE : `${Math.round(device.power_watts)} W`);
    this.#holder.hidden = !job;
    setText(this.#free, job ? "" : "free");
    setText(this.#holder, slot?.job_name ?? job ?? "");
    if (job) this.#holder.href = jobUrl(job);
  }
}

/** A fraction as text and bar. */
class BarCell {
  #text = h("span");
  #fill = h("span");
  #bar = h("div", { class: "bar", "aria-hidden": "true" }, this.#fill);
  node = h("td", { class: "figure" }, this.#text, this.#bar);

  /** @param {number | null} fraction 0 to 1 @param {string} text */
  set(fraction, text) {
    setText(this.#text, text);
    this.#bar.hidden = fraction === null;
    setFill(this.#fill, fraction);
  }
}
