/**
 * The machine's history: one chart for each measured quantity, with a curve for each GPU.
 *
 * @import { MachinePublic as Machine } from "../shared/api-types.d.ts"
 * @import { Colours } from "../charts/plotly-loader.js"
 * @typedef {Machine["history"][number]} Sample
 * @typedef {object} Series
 * @property {string} name
 * @property {string} unit
 * @property {number | null} max of the axis, where it is known
 * @property {{gpu: string, values: (number | null)[]}[]} curves
 * @property {string} latest
 */
import { ChartGrid } from "../charts/chart-grid.js";
import { baseLayout, themeColours } from "../charts/plotly-loader.js";
import { byId } from "../shared/dom.js";
import { bytes } from "../shared/format.js";
import { onThemeChange } from "../shared/theme.js";

const GIGABYTE = 1e9;

const section = byId("history");
const grid = new ChartGrid(byId("history-charts"));
/** @type {Machine | null} */
let shown = null;
onThemeChange(() => void (shown && showHistory(shown)));

/** @param {Machine} machine */
export async function showHistory(machine) {
  shown = machine;
  if (!machine.history.length) return;
  section.hidden = false;
  const colours = themeColours(section);
  const times = machine.history.map(({ at }) => plotlyTime(at ?? ""));
  await grid.draw(
    seriesOf(machine).map((series) => ({ name: series.name, latest: series.latest, traces: traces(series, times, colours), layout: layout(series, colours) })),
  );
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

/** @param {Series} series @param {number[]} times @param {Colours} colours */
function traces({ curves, unit }, times, colours) {
  return curves.map(({ gpu, values }, index) => ({
    type: "scatter",
    mode: times.length === 1 ? "markers" : "lines",
    name: gpu,
    x: times,
    y: values,
    opacity: 1 - 0.6 * (index / curves.length),
    line: { color: colours.line, width: 1.5, dash: index % 2 ? "dot" : "solid" },
    marker: { color: colours.line, size: 5 },
    hovertemplate: `%{y:.4g} ${unit} · %{x|%H:%M:%S}${gpu ? ` · ${gpu}` : ""}<extra></extra>`,
  }));
}

/** @param {Series} series @param {Colours} colours */
function layout({ unit, max }, colours) {
  const base = baseLayout(colours, "");
  return {
    ...base,
    xaxis: { ...base.xaxis, type: "date", title: undefined, rangemode: "normal", hoverformat: "%H:%M:%S" },
    yaxis: { ...base.yaxis, rangemode: "tozero", range: max === null ? undefined : [0, max], title: { text: unit, standoff: 4 } },
  };
}

/** Plotly shows every time as if it were UTC. @param {string} at */
function plotlyTime(at) {
  const time = new Date(at);
  return time.getTime() - time.getTimezoneOffset() * 60_000;
}
