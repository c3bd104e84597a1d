/**
 * The page of this machine: processor, memory, disk and devices, now and over time.
 *
 * @typedef {{free_bytes: number, total_bytes: number}} Space
 *
 * @typedef {object} DeviceUsage
 * @property {string} name
 * @property {string} kind "cpu" or "cuda"
 * @property {string | null} model
 * @property {number | null} utilization_percent
 * @property {number | null} memory_used_bytes
 * @property {number | null} memory_total_bytes
 * @property {number | null} temperature_celsius
 * @property {number | null} power_watts
 * @property {string | null} held_by
 *
 * @typedef {object} Past
 * @property {string} at
 * @property {number | null} cpu_percent
 * @property {number} memory_used_bytes
 * @property {number} disk_free_bytes
 * @property {{name: string, utilization_percent: number | null, memory_used_bytes: number | null}[]} devices the GPUs
 *
 * @typedef {object} Machine
 * @property {string} at
 * @property {number | null} cpu_percent
 * @property {number} cores
 * @property {{used_bytes: number, total_bytes: number}} memory
 * @property {{home: Space, shared_memory: Space | null}} disk
 * @property {DeviceUsage[]} devices
 * @property {Past[]} history oldest first
 */
import { listDevices, readMachine } from "./api.js";
import { byId, h, setText } from "./dom.js";
import { bytes, count } from "./format.js";
import { DeviceTable } from "./device-table.js";
import { MachineCharts } from "./machine-charts.js";
import { Stream } from "./stream.js";
import { kindWords, topologySentence } from "./topology.js";

/** The server looks as often; asking more often shows nothing new. */
const LOOK_MS = 5000;
/** From here on somebody should make room. */
const TIGHT = 0.9;

const table = new DeviceTable(byId("devices"));
const charts = new MachineCharts(byId("past"), byId("past-charts"));

async function refresh() {
  const [machine, devices] = await Promise.all([readMachine(), listDevices()]);
  setText(byId("hardware"), `${machine.cores} cores, ${bytes(machine.memory.total_bytes)} of memory`);
  showMeters(machine);
  table.show(machine.devices, new Map(devices.items.map((slot) => [slot.name, slot])));
  showTopology(devices.items.map(({ name }) => name), devices.links);
  byId("main").setAttribute("aria-busy", "false");
  await charts.show(machine);
}

/** @param {Machine} machine */
function showMeters({ cpu_percent, cores, memory, disk }) {
  const shared = disk.shared_memory;
  byId("machine-figures").replaceChildren(
    meter("Processor", cpu_percent === null ? null : cpu_percent / 100, cpu_percent === null ? "–" : `${Math.round(cpu_percent)} %`, `of ${count(cores)} cores`, false),
    meter("Memory", memory.used_bytes / memory.total_bytes, bytes(memory.used_bytes), `of ${bytes(memory.total_bytes)} in use`),
    space("Disk of the jobs", disk.home),
    ...(shared ? [space("Shared memory", shared)] : []),
  );
}

/**
 * @param {string} name
 * @param {Space} room
 */
const space = (name, { free_bytes, total_bytes }) => meter(name, 1 - free_bytes / total_bytes, bytes(free_bytes), `free of ${bytes(total_bytes)}`);

/**
 * @param {string} name
 * @param {number | null} share in use, 0 to 1
 * @param {string} figure
 * @param {string} remark
 * @param {boolean} [canBeTight]
 */
function meter(name, share, figure, remark, canBeTight = true) {
  const used = Math.min(1, Math.max(0, share ?? 0));
  const fill = h("span");
  fill.style.width = `${used * 100}%`;
  const bar = h("div", { class: "bar", "aria-hidden": "true", "data-tight": canBeTight && used > TIGHT }, fill);
  return h("div", {}, h("dt", {}, name), h("dd", {}, figure), h("dd", { class: "muted" }, remark, bar));
}

/**
 * @param {string[]} names
 * @param {import("./topology.js").Link[]} links
 */
function showTopology(names, links) {
  byId("topology").hidden = links.length === 0;
  const linked = names.filter((name) => links.some(({ first, second }) => first === name || second === name));
  setText(byId("topology-sentence"), topologySentence(linked, links));
  const kind = (/** @type {string} */ one, /** @type {string} */ other) =>
    links.find(({ first, second }) => (first === one && second === other) || (first === other && second === one))?.kind;
  const heading = (/** @type {string} */ name, /** @type {string} */ scope) => h("th", { scope }, name);
  byId("links-head").replaceChildren(h("tr", {}, h("td"), ...linked.map((name) => heading(name, "col"))));
  byId("links").replaceChildren(
    ...linked.map((one) => {
      const cells = linked.map((other) => {
        const found = kind(one, other);
        return h("td", { class: one === other ? "self" : null, title: found && kindWords(found) }, found ?? "–");
      });
      return h("tr", {}, heading(one, "row"), ...cells);
    }),
  );
}

/** What cannot be read now is read at the next look; the head of the page says whether the server is there. */
const look = () => refresh().catch((error) => console.warn("the machine could not be read", error));

setInterval(() => document.hidden || void look(), LOOK_MS);
new Stream({ job: null, log: null }, { live: () => void look(), event: () => undefined });
