/**
 * The page of this machine: processor, memory, disk and devices, now and over time.
 *
 * @import { Content } from "../charts/chart-frame.js"
 * @import { Devices, MachinePublic as Machine } from "../shared/api-types.d.ts"
 */
import { ChartGrid } from "../charts/chart-grid.js";
import { colourOf } from "../charts/palette.js";
import { call } from "../shared/api.js";
import { byId, h, setText } from "../shared/dom.js";
import { bytes, count } from "../shared/format.js";
import { setFill } from "../shared/job-state.js";
import "../shared/layout.js";
import { keepFresh, markReady } from "../shared/live-page.js";
import { kindLabel, linkedSlots, topologySentence } from "../shared/topology.js";
import { onDeviceChange, showDevices } from "./device-table.js";

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
onDeviceChange(() => refreshing.now());
setInterval(() => document.hidden || refreshing.now(), REFRESH_INTERVAL_MS);
