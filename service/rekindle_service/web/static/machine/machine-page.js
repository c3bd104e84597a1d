/**
 * The page of this machine: processor, memory, disk and devices, now and over time.
 *
 * @import { Content } from "../charts/chart-frame.js"
 * @import { Devices, MachinePublic as Machine, DevicePublic as Slot } from "../shared/api-types.d.ts"
 * @typedef {Machine["devices"][number]} Device
 */
import { ChartGrid } from "../charts/chart-grid.js";
import { colourOf } from "../charts/palette.js";
import { me } from "../shared/account.js";
import { call, jobUrl } from "../shared/api.js";
import { ConfirmDialog, field } from "../shared/confirm-dialog.js";
import { byId, h, setText, KeyedChildren } from "../shared/dom.js";
import { bytes, count, NONE, percent } from "../shared/format.js";
import { setFill } from "../shared/job-state.js";
import { keepFresh, markReady } from "../shared/live-page.js";
import { kindLabel, linkedSlots, otherJobs, slotText, topologySentence } from "../shared/slots.js";

// --- The slots of this machine as a table: the utilization of each device, which job holds it, and why none gets it.

const body = byId("devices");
const dialog = new ConfirmDialog();
let mayChange = false;
void me.then(({ scope }) => (mayChange = scope === "admin"));

/** @type {KeyedChildren<{device: Device, slot: Slot | undefined}, DeviceRow>} */
const rows = new KeyedChildren(body, ({ device }) => device.name, ({ device }) => new DeviceRow(device.name));

/** @param {Device[]} devices @param {Slot[]} slots */
function showDevices(devices, slots) {
  rows.show(devices.map((device) => ({ device, slot: slots.find(({ name }) => name === device.name) })));
  const measured = devices.some(({ utilization_percent: use, memory_total_bytes: total }) => use !== null || total !== null);
  body.closest("table")?.classList.toggle("plain", !measured);
}

/** What follows the job that holds the slot, or stands in its place. @param {Slot | undefined} slot @param {string | null} job */
function freeText(slot, job) {
  if (!slot) return job ? "" : "free";
  if (!job) return slotText(slot);
  return otherJobs(slot) + (slot.free_share ? ` · ${percent(slot.free_share)} free` : "");
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
      refreshing.now();
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

// --- The page.

/** The server samples as often; asking more often shows nothing new. */
const REFRESH_INTERVAL_MS = 5000;
const MAX_POINTS = 360;
/** A meter above this fraction is highlighted. */
const NEARLY_FULL = 0.9;

async function refresh() {
  const [machine, devices] = await Promise.all([call("GET /machine", { max_points: MAX_POINTS }), call("GET /devices")]);
  setText(byId("hardware"), `${machine.cores} cores, ${bytes(machine.memory.total_bytes)} of memory`);
  showMeters(machine);
  setText(byId("isolation"), machine.isolation);
  showDevices(machine.devices, devices.items);
  showNodes(devices);
  showTopology(devices);
  markReady();
  showHistory(machine);
}

/** @param {Machine} machine */
function showMeters({ cpu_percent: cpu, cores, memory, disk }) {
  const space = (/** @type {string} */ name, /** @type {Machine["disk"]["home"]} */ { free_bytes: free, total_bytes: total }) =>
    meter(name, 1 - free / total, bytes(free), `free of ${bytes(total)}`);
  byId("machine-figures").replaceChildren(
    meter("CPU", cpu === null ? null : cpu / 100, cpu === null ? "–" : `${Math.round(cpu)} %`, `of ${count(cores)} cores`, false),
    meter("Memory", memory.used_bytes / memory.total_bytes, bytes(memory.used_bytes), `of ${bytes(memory.total_bytes)} in use`),
    space("Job disk", disk.home),
    ...(disk.shared_memory ? [space("Shared memory", disk.shared_memory)] : []),
  );
}

/**
 * @param {string} name @param {number | null} used fraction, 0 to 1 @param {string} figure @param {string} remark
 * @param {boolean} [canRunOut]
 */
function meter(name, used, figure, remark, canRunOut = true) {
  const fill = h("span");
  setFill(fill, used);
  const bar = h("div", { class: "bar", "aria-hidden": "true", "data-full": canRunOut && (used ?? 0) > NEARLY_FULL }, fill);
  return h("div", {}, h("dt", {}, name), h("dd", {}, figure), h("dd", { class: "muted" }, remark, bar));
}

/** @param {Devices} devices */
function showNodes({ excluded_nodes: nodes }) {
  byId("nodes").hidden = !Object.keys(nodes).length;
  byId("excluded-nodes").replaceChildren(...Object.entries(nodes).map(([host, reason]) => h("div", {}, h("dt", {}, host), h("dd", {}, reason))));
}

/** @param {Devices} devices */
function showTopology({ items, links }) {
  byId("topology").hidden = links.length === 0;
  const slots = linkedSlots(items.map(({ name }) => name), links);
  setText(byId("topology-sentence"), topologySentence(slots, links));
  const heading = (/** @type {string} */ name, /** @type {string} */ scope) => h("th", { scope }, name);
  const cell = (/** @type {string} */ one, /** @type {string} */ other) => {
    const kind = links.find(({ first, second }) => (first === one && second === other) || (first === other && second === one))?.kind;
    return h("td", { class: one === other ? "self" : null, title: kind && kindLabel(kind) }, kind ?? "–");
  };
  byId("links-head").replaceChildren(h("tr", {}, h("td"), ...slots.map((name) => heading(name, "col"))));
  byId("links").replaceChildren(...slots.map((one) => h("tr", {}, heading(one, "row"), ...slots.map((other) => cell(one, other)))));
}

// --- machine charts: The machine's history: one chart for each measured quantity, with a curve for each GPU.

/**
 * @typedef {Machine["history"][number]} Sample
 * @typedef {object} Series
 * @property {string} name
 * @property {string} unit
 * @property {number | null} max of the axis, where it is known
 * @property {{gpu: string, values: (number | null)[]}[]} curves
 * @property {string} latest
 */

const GIGABYTE = 1e9;

const section = byId("history");
const grid = new ChartGrid(byId("history-charts"));

/** @param {Machine} machine */
function showHistory(machine) {
  if (!machine.history.length) return;
  section.hidden = false;
  const times = machine.history.map(({ at }) => Date.parse(at ?? "") / 1000);
  grid.draw(seriesOf(machine).map((series) => ({ name: series.name, latest: series.latest, content: contentOf(series, times) })));
}

/** @param {Machine} machine @returns {Series[]} */
function seriesOf({ history, memory, disk, devices, cpu_percent: cpu }) {
  const machine = (/** @type {(sample: Sample) => number | null} */ value) => [{ gpu: "", values: history.map(value) }];
  const gpus = devices.filter(({ kind }) => kind === "cuda");
  const perGpu = (/** @type {(gpu: Sample["devices"][number]) => number | null} */ value) =>
    gpus.map(({ name }) => ({ gpu: name, values: history.map((sample) => sample.devices.filter((gpu) => gpu.name === name).map(value)[0] ?? null) }));
  const gigabytes = (/** @type {number | null} */ value) => (value === null ? null : value / GIGABYTE);
  /** @type {Series[]} */
  const gpuSeries = [
    { name: "GPU utilization", unit: "%", max: 100, curves: perGpu((gpu) => gpu.utilization_percent), latest: "" },
    { name: "GPU memory in use", unit: "GB", max: null, curves: perGpu((gpu) => gigabytes(gpu.memory_used_bytes)), latest: "" },
  ];
  return [
    ...(gpus.length ? gpuSeries : []),
    { name: "CPU", unit: "%", max: 100, curves: machine((sample) => sample.cpu_percent), latest: cpu === null ? "" : `${Math.round(cpu)} % now` },
    { name: "Memory in use", unit: "GB", max: gigabytes(memory.total_bytes), curves: machine((sample) => gigabytes(sample.memory_used_bytes)), latest: `${bytes(memory.used_bytes)} now` },
    { name: "Free on the job disk", unit: "GB", max: null, curves: machine((sample) => gigabytes(sample.disk_free_bytes)), latest: `${bytes(disk.home.free_bytes)} now` },
  ];
}

/** @param {Series} series @param {number[]} times seconds since the epoch @returns {Content} */
function contentOf({ curves, unit, max }, times) {
  return {
    series: curves.map(({ gpu, values }, index) => ({ name: gpu, x: times, y: values, colour: curves.length > 1 ? colourOf(index, curves.length) : "--accent", width: 1.5 })),
    x: { kind: "time" },
    y: { unit, min: 0, max: max ?? undefined },
  };
}

const refreshing = keepFresh(refresh, REFRESH_INTERVAL_MS, () => false);
setInterval(() => document.hidden || refreshing.now(), REFRESH_INTERVAL_MS);
