/**
 * The machine's history: one chart for each measured quantity, with a curve for each GPU.
 *
 * @import { MachinePublic as Machine } from "../shared/api-types.d.ts"
 * @import { Content } from "../charts/chart-frame.js"
 * @typedef {Machine["history"][number]} Sample
 * @typedef {object} Series
 * @property {string} name
 * @property {string} unit
 * @property {number | null} max of the axis, where it is known
 * @property {{gpu: string, values: (number | null)[]}[]} curves
 * @property {string} latest
 */
import { ChartGrid } from "../charts/chart-grid.js";
import { colourOf } from "../charts/palette.js";
import { byId } from "../shared/dom.js";
import { bytes } from "../shared/format.js";

const GIGABYTE = 1e9;

const section = byId("history");
const grid = new ChartGrid(byId("history-charts"));

/** @param {Machine} machine */
export function showHistory(machine) {
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
    { name: "Processor", unit: "%", max: 100, curves: machine((sample) => sample.cpu_percent), latest: cpu === null ? "" : `${Math.round(cpu)} % now` },
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
