/**
 * Charts of a job's metrics: the chosen ones, with one curve per attempt, kept up to date by the event stream.
 *
 * @import { AttemptPublic as Attempt } from "../shared/api-types.d.ts"
 * @import { ChartStyle } from "../charts/metric-picker.js"
 * @import { Part } from "../charts/metric-store.js"
 * @import { Colours } from "../charts/plotly-loader.js"
 * @typedef {{origin: number, unit: number, title: string}} TimeScale origin and unit in seconds
 */
import { asCsv, drawMode, drawable, missingValues, positions, smoothed, timeUnit } from "../charts/chart-data.js";
import { ChartGrid } from "../charts/chart-grid.js";
import { MetricPicker } from "../charts/metric-picker.js";
import { MetricStore, resumeSteps } from "../charts/metric-store.js";
import { baseLayout, plotly, themeColours } from "../charts/plotly-loader.js";
import { call, warn } from "../shared/api.js";
import { byId, h } from "../shared/dom.js";
import { onThemeChange } from "../shared/theme.js";

/** The eye sees no more than this. */
const REDRAW_INTERVAL_MS = 400;
const MAX_POINTS = 1000;
const MAX_EXPORTED = 100_000;

export class JobCharts {
  #jobId;
  #section = byId("metrics");
  #grid = new ChartGrid(byId("charts"), (name, plot) => this.#tools(name, plot));
  #metrics = new MetricStore();
  #picker = new MetricPicker(() => this.#fetchMissing(), () => this.#schedule());
  /** @type {Map<number, number>} */
  #resumedFrom = new Map();
  /** @type {Map<string, number>} byte up to which the stream has delivered each file of metrics */
  #received = new Map();
  #scheduled = false;

  /** @param {string} jobId */
  constructor(jobId) {
    this.#jobId = jobId;
    onThemeChange(() => this.#schedule());
  }

  /** @param {Attempt[]} attempts */
  setAttempts(attempts) {
    this.#resumedFrom = resumeSteps(attempts);
    this.#schedule();
  }

  /** Fetch which metrics there are, and the points of those that are shown. */
  async load() {
    const { items } = await call("GET /jobs/{job_id}/metrics/names", { job_id: this.#jobId });
    this.#metrics.addNames(items.map(({ name }) => name));
    this.#picker.show(this.#metrics.names());
    await this.#fetch(this.#picker.chosen);
  }

  /** @param {{attempt: number, file: string, offset: number, next_offset: number, points: any[]}} event */
  append({ attempt, file, offset, next_offset: end, points }) {
    const key = `${attempt} ${file}`;
    const received = this.#received.get(key) ?? 0;
    this.#received.set(key, Math.max(received, end));
    if (offset > received) this.load().catch(warn("the metrics"));
    if (this.#metrics.append(attempt, points)) {
      this.#picker.show(this.#metrics.names());
      this.#fetchMissing();
    }
    this.#schedule();
  }

  #fetchMissing() {
    this.#fetch(this.#picker.chosen.filter((name) => !this.#metrics.has(name))).catch(warn("the metrics"));
  }

  /** @param {string[]} names */
  async #fetch(names) {
    names.forEach((name) => this.#metrics.track(name));
    if (names.length) this.#metrics.load(await this.#read(names, MAX_POINTS));
    this.#schedule();
  }

  /** @param {string[]} names @param {number} limit points of each */
  async #read(names, limit) {
    return (await call("GET /jobs/{job_id}/metrics", { job_id: this.#jobId, name: names, max_points: limit })).items;
  }

  #schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setTimeout(() => {
      this.#scheduled = false;
      this.#draw().catch((error) => console.warn("the charts could not be drawn", error));
    }, REDRAW_INTERVAL_MS);
  }

  async #draw() {
    if (!this.#metrics.names().length) return;
    this.#section.hidden = false;
    const colours = themeColours(this.#section);
    const style = this.#picker.style;
    await this.#grid.draw(
      this.#picker.chosen.map((name) => {
        const parts = this.#metrics.parts(name, this.#resumedFrom);
        const scale = timeScale(parts);
        const warning = missingValues(parts.flatMap(({ kept, replayed }) => [...kept, ...replayed]), style.logarithmic);
        return { name, latest: latestText(parts), warning, traces: traces(parts, colours, style, scale), layout: layout(parts, colours, style, scale) };
      }),
    );
  }

  /** @param {string} name @param {HTMLElement} plot */
  #tools(name, plot) {
    const button = (/** @type {string} */ format, /** @type {() => Promise<void>} */ save) =>
      h("button", { type: "button", class: "link", "aria-label": `Save ${name} as ${format}`, onclick: () => void save() }, format);
    return h("span", { class: "links" }, button("CSV", () => this.#saveCsv(name)), button("PNG", () => this.#savePng(name, plot)));
  }

  /** @param {string} name */
  async #saveCsv(name) {
    const all = new MetricStore();
    all.load(await this.#read([name], MAX_EXPORTED));
    saveAs(`${name}.csv`, new Blob([asCsv(all.parts(name, this.#resumedFrom))], { type: "text/csv" }));
  }

  /** @param {string} name @param {any} plot */
  async #savePng(name, plot) {
    const library = await plotly();
    const figure = { data: plot.data, layout: { ...plot.layout, paper_bgcolor: themeColours(this.#section).background } };
    saveAs(`${name}.png`, await library.toImage(figure, { format: "png", width: 960, height: 540, scale: 2 }));
  }
}

/**
 * @param {string} name characters that file systems reject become a dash
 * @param {Blob | string} content a string is a data URL
 */
function saveAs(name, content) {
  const url = typeof content === "string" ? content : URL.createObjectURL(content);
  h("a", { href: url, download: name.replaceAll(/[^\w.-]+/g, "-").slice(-120) }).click();
  if (typeof content !== "string") setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** @param {Part[]} parts */
function latestText(parts) {
  const last = parts.at(-1)?.kept.at(-1);
  return last && last[3] !== null ? `${Number(last[3].toPrecision(5))} at step ${last[0]}` : "";
}

/** @param {Part[]} parts @returns {TimeScale} */
function timeScale(parts) {
  const times = parts.flatMap(({ kept, replayed }) => [kept.at(0), replayed.at(0), kept.at(-1), replayed.at(-1)]).flatMap((point) => (point ? [point[2]] : []));
  const origin = Math.min(...times);
  const [title, unit] = timeUnit(Math.max(...times) - origin);
  return { origin, unit, title };
}

/**
 * Per attempt: the steps that count, the replayed ones faded, and under a smoothed curve the values themselves.
 *
 * @param {Part[]} parts @param {Colours} colours @param {ChartStyle} style @param {TimeScale} scale
 */
function traces(parts, colours, style, scale) {
  const trace = (/** @type {Part["kept"]} */ points, /** @type {string} */ name, /** @type {object} */ line, smoothing = 0) => {
    const x = positions(points, style.axis, scale.origin, scale.unit);
    return {
      type: "scatter",
      mode: drawMode(x),
      name,
      x,
      y: smoothing ? smoothed(drawable(points), smoothing) : drawable(points),
      customdata: points.map(([step, , , value]) => [step, value]),
      line,
      marker: { color: colours.line, size: 5 },
      hovertemplate: `%{customdata[1]:.5g} · step %{customdata[0]} · ${name}<extra></extra>`,
    };
  };
  const replayed = parts
    .filter((part) => part.replayed.length)
    .map((part) => trace([...part.kept.slice(-1), ...part.replayed], `attempt ${part.attempt}, replayed`, { color: colours.replayed, width: 2, dash: "dot" }));
  const raw = style.smoothing ? parts.map((part) => trace(part.kept, `attempt ${part.attempt}`, { color: colours.replayed, width: 1 })) : [];
  const kept = parts.map((part) => trace(part.kept, `attempt ${part.attempt}`, { color: colours.line, width: 1.75 }, style.smoothing));
  return [...replayed, ...raw, ...kept];
}

/** @param {Part[]} parts @param {Colours} colours @param {ChartStyle} style @param {TimeScale} scale */
function layout(parts, colours, { axis, logarithmic }, scale) {
  const base = baseLayout(colours, axis === "time" ? scale.title : axis);
  const starts = parts.slice(1).flatMap((part) => {
    const x = positions(part.kept, axis, scale.origin, scale.unit)[0];
    return x === undefined || x === null ? [] : [{ attempt: part.attempt, x }];
  });
  return {
    ...base,
    uirevision: `${axis} ${logarithmic}`,
    yaxis: { ...base.yaxis, type: logarithmic ? "log" : "linear", exponentformat: "power" },
    shapes: starts.map(({ x }) => ({
      type: "line", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, line: { color: colours.replayed, width: 1, dash: "dash" },
    })),
    annotations: starts.map(({ attempt, x }) => ({
      x, y: 1, yref: "paper", yanchor: "bottom", showarrow: false, text: `attempt ${attempt}`, font: { size: 10 },
    })),
  };
}
