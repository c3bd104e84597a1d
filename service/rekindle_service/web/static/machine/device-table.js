/**
 * The slots of this machine as a table: the utilization of each device, which job holds it, and why none gets it.
 *
 * @import { DevicePublic as Slot, MachinePublic as Machine } from "../shared/api-types.d.ts"
 * @typedef {Machine["devices"][number]} Device
 */
import { me } from "../shared/account.js";
import { call, jobUrl, warn } from "../shared/api.js";
import { ConfirmDialog, field } from "../shared/confirm-dialog.js";
import { KeyedChildren, byId, h, setText } from "../shared/dom.js";
import { NONE, bytes, percent } from "../shared/format.js";
import { setFill } from "../shared/job-state.js";

const body = byId("devices");
const dialog = new ConfirmDialog();
let mayChange = false;
/** Called when a device is used again, or no longer. */
let onChange = () => {};
me.then(({ scope }) => (mayChange = scope === "admin")).catch(warn("your permissions"));

/** @param {() => void} refresh */
export const onDeviceChange = (refresh) => void (onChange = refresh);

/** @type {KeyedChildren<{device: Device, slot: Slot | undefined}, DeviceRow>} */
const rows = new KeyedChildren(body, ({ device }) => device.name, ({ device }) => new DeviceRow(device.name));

/** @param {Device[]} devices @param {Slot[]} slots */
export function showDevices(devices, slots) {
  rows.show(devices.map((device) => ({ device, slot: slots.find(({ name }) => name === device.name) })));
  const measured = devices.some(({ utilization_percent: use, memory_total_bytes: total }) => use !== null || total !== null);
  body.closest("table")?.classList.toggle("plain", !measured);
}

/** What follows the job that holds the slot, or stands in its place. @param {Slot | undefined} slot @param {string | null} job */
function freeText(slot, job) {
  const jobs = slot?.jobs.length ?? 0;
  const others = jobs > 1 ? ` and ${jobs - 1} more` : "";
  if (job) return others + (slot?.free_share ? ` · ${percent(slot.free_share)} free` : "");
  if (slot?.held) return "a job of another person";
  if (slot?.unusable) return slot.disabled ? "disabled" : "in use by others";
  return "free";
}

/** Ask whether to disable a slot, or to enable it. @param {Slot} slot */
function changeUse({ name, disabled }) {
  const reason = h("input", { maxlength: 500, autocomplete: "off" });
  dialog.open({
    title: `${disabled ? "Enable" : "Disable"} ${name}?`,
    jobs: [],
    consequence: disabled ? `It was disabled: ${disabled.reason}. Jobs can use it again.` : "No job uses it until it is enabled. Elastic jobs on it continue on fewer slots; other jobs on it save a snapshot and return to the queue.",
    fields: disabled ? [] : [field("Reason", "reason", reason)],
    yes: `${disabled ? "Enable" : "Disable"} it`,
    run: async (chosen) => {
      if (disabled) await call("POST /devices/{name}/enable", { name });
      else await call("POST /devices/{name}/disable", { name }, { reason: String(chosen.get("reason") ?? "") });
      onChange();
    },
  });
}

class DeviceRow {
  #model = h("td");
  #use = new BarCell();
  #memory = new BarCell();
  #temperature = h("td", { class: "number figure" });
  #power = h("td", { class: "number figure" });
  #holder = h("a");
  #free = h("span", { class: "muted" });
  #reason = h("p", { class: "unusable" });
  #button = h("button", { type: "button", class: "quiet", hidden: true });
  /** @type {Slot | undefined} */
  #slot;

  /** @param {string} name */
  constructor(name) {
    const holder = h("td", { class: "holder-cell" }, this.#holder, this.#free, this.#reason);
    const cells = [this.#model, this.#use.node, this.#memory.node, this.#temperature, this.#power, holder, h("td", {}, this.#button)];
    this.node = h("tr", {}, h("th", { scope: "row" }, name), ...cells);
    this.#button.addEventListener("click", () => this.#slot && changeUse(this.#slot));
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
    setText(this.#free, freeText(slot, job));
    setText(this.#holder, slot?.job_name ?? job ?? "");
    if (job) this.#holder.href = jobUrl(job);
    this.#slot = slot;
    this.node.classList.toggle("put-aside", Boolean(slot?.unusable));
    setText(this.#reason, slot?.unusable ?? "");
    this.#reason.hidden = !slot?.unusable;
    this.#button.hidden = !mayChange || !slot;
    setText(this.#button, slot?.disabled ? "Enable" : "Disable");
    this.#button.setAttribute("aria-label", `${slot?.disabled ? "Enable" : "Disable"} ${device.name}`);
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
