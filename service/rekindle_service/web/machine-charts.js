/** The machine's past: one chart for each thing that is measured, with a curve for each GPU where there are any. */
import { arrange, h, setText } from "./dom.js";
import { bytes } from "./format.js";
import { CONFIG, baseLayout, plotly, themeColours } from "./plot.js";
import { onThemeChange } from "./theme.js";

/**
 * @typedef {import("./machine-page.js").Machine} Machine
 * @typedef {import("./machine-page.js").Past} Past
 *
 * @typedef {object} Chart
 * @property {string} title
 * @property {string} unit of what is drawn
 * @property {number | null} top of the axis, where it is known
 * @property {{name: string, values: (number | null)[]}[]} curves
 * @property {string} latest
 */

const GIGABYTE = 1e9;

export class MachineCharts {
  #section;
  #grid;
  /** @type {Map<string, {figure: HTMLElement, plot: HTMLElement, latest: HTMLElement}>} */
  #figures = new Map();
  /** @type {Machine | null} */
  #machine = null;

  /**
   * @param {HTMLElement} section hidden until there is a past
   * @param {HTMLElement} grid
   */
  constructor(section, grid) {
    this.#section = section;
    this.#grid = grid;
    onThemeChange(() => void this.#draw());
  }

  /** @param {Machine} machine */
  async show(machine) {
    this.#machine = machine;
    await this.#draw();
  }

  async #draw() {
    const machine = this.#machine;
    if (!machine?.history.length) return;
    const charts = chartsOf(machine);
    this.#section.hidden = false;
    arrange(this.#grid, charts.map(({ title }) => this.#figure(title).figure));
    const library = await plotly();
    const times = machine.history.map(({ at }) => localTime(at));
    for (const chart of charts) {
      const { plot, latest } = this.#figure(chart.title);
      setText(latest, chart.latest);
      const colours = themeColours(this.#section);
      await library.react(plot, traces(chart, times, colours), layout(chart, colours), CONFIG);
    }
  }

  /** @param {string} title */
  #figure(title) {
    const known = this.#figures.get(title);
    if (known) return known;
    const plot = h("div", { class: "plot" });
    const latest = h("span", { class: "latest" });
    const made = { plot, latest, figure: h("figure", { class: "chart" }, h("figcaption", {}, title, latest), plot) };
    this.#figures.set(title, made);
    return made;
  }
}

/**
 * @param {Machine} machine
 * @returns {Chart[]}
 */
function chartsOf({ history, memory, disk, devices, cpu_percent }) {
  const one = (/** @type {(past: Past) => number | null} */ value) => [{ name: "", values: history.map(value) }];
  const gpus = devices.filter(({ kind }) => kind === "cuda");
  const each = (/** @type {(gpu: Past["devices"][0]) => number | null} */ value) =>
    gpus.map(({ name }) => ({ name, values: history.map((past) => past.devices.filter((gpu) => gpu.name === name).map(value)[0] ?? null) }));
  const whole = [
    { title: "Processor", unit: "%", top: 100, curves: one((past) => past.cpu_percent), latest: cpu_percent === null ? "" : `${Math.round(cpu_percent)} % now` },
    { title: "Memory in use", unit: "GB", top: memory.total_bytes / GIGABYTE, curves: one((past) => past.memory_used_bytes / GIGABYTE), latest: `${bytes(memory.used_bytes)} now` },
    { title: "Free on the disk of the jobs", unit: "GB", top: null, curves: one((past) => past.disk_free_bytes / GIGABYTE), latest: `${bytes(disk.home.free_bytes)} now` },
  ];
  if (!gpus.length) return whole;
  return [
    { title: "Use of the GPUs", unit: "%", top: 100, curves: each((gpu) => gpu.utilization_percent), latest: "" },
    { title: "Memory of the GPUs", unit: "GB", top: null, curves: each((gpu) => gpu.memory_used_bytes === null ? null : gpu.memory_used_bytes / GIGABYTE), latest: "" },
    ...whole,
  ];
}

/**
 * @param {Chart} chart
 * @param {number[]} times
 * @param {import("./plot.js").Colours} colours
 */
function traces({ curves, unit }, times, colours) {
  return curves.map(({ name, values }, index) => ({
    type: "scatter",
    mode: times.length === 1 ? "markers" : "lines",
    name,
    x: times,
    y: values,
    opacity: 1 - 0.6 * (index / curves.length),
    line: { color: colours.line, width: 1.5, dash: index % 2 ? "dot" : "solid" },
    marker: { color: colours.line, size: 5 },
    hovertemplate: `%{y:.4g} ${unit} · %{x|%H:%M:%S}${name ? ` · ${name}` : ""}<extra></extra>`,
  }));
}

/**
 * @param {Chart} chart
 * @param {import("./plot.js").Colours} colours
 */
function layout({ unit, top }, colours) {
  const base = baseLayout(colours);
  return {
    ...base,
    xaxis: { ...base.xaxis, type: "date", title: undefined, rangemode: "normal", hoverformat: "%H:%M:%S" },
    yaxis: { ...base.yaxis, rangemode: "tozero", range: top === null ? undefined : [0, top], title: { text: unit, standoff: 4 } },
  };
}

/** Plotly shows every time as if it were UTC. @param {string} at */
function localTime(at) {
  const time = new Date(at);
  return time.getTime() - time.getTimezoneOffset() * 60_000;
}
