/**
 * Charts of a job's metrics: those that are chosen, over steps, epochs or time, smoothed, on a plain or a log scale.
 *
 * Names of metrics never reach Plotly, which reads markup in labels: they are headings of the page's own.
 */
import { asCsv, drawable, drawnAs, positions, smoothed, timeUnit, unseen } from "./curve.js";
import { byId, h, setText } from "./dom.js";
import { listMetricNames, listSeries } from "./job-api.js";
import { MetricPicker } from "./metric-picker.js";
import { CONFIG, baseLayout, plotly, themeColours } from "./plot.js";
import { saveAs } from "./save-as.js";
import { Metrics } from "./series.js";
import { onThemeChange } from "./theme.js";

/** Redrawing more often than this buys nothing that an eye can see. */
const REDRAW_MS = 400;
const MOST_EXPORTED = 100_000;

/** @typedef {import("./series.js").Part} Part */
/** @typedef {{axis: import("./curve.js").Axis, smoothing: number, logarithmic: boolean}} Way how curves are drawn */
/** @typedef {{figure: HTMLElement, plot: HTMLElement, latest: HTMLElement, unseen: HTMLElement}} Chart */

export class Charts {
  #jobId;
  #section = byId("metrics");
  #axis = /** @type {HTMLSelectElement} */ (byId("chart-axis"));
  #smoothing = /** @type {HTMLInputElement} */ (byId("chart-smoothing"));
  #log = /** @type {HTMLInputElement} */ (byId("chart-log"));
  #metrics = new Metrics();
  #picker = new MetricPicker(() => this.#fetchChosen());
  /** @type {Map<number, number>} */
  #resumedFrom = new Map();
  /** @type {Map<string, Chart>} */
  #charts = new Map();
  /** @type {Map<string, number>} byte up to which each file of metrics has been told of */
  #heard = new Map();
  #scheduled = false;
  /** A chart gets narrower when another one comes beside it, which Plotly does not notice. */
  #sizes = new ResizeObserver((entries) => void resize(entries.map(({ target }) => target)));

  /** @param {string} jobId */
  constructor(jobId) {
    this.#jobId = jobId;
    for (const control of [this.#axis, this.#smoothing, this.#log]) control.addEventListener("input", () => this.#schedule());
    onThemeChange(() => this.#schedule());
  }

  /** @param {import("./api.js").Attempt[]} attempts */
  setAttempts(attempts) {
    this.#resumedFrom = new Map(attempts.map((attempt) => [attempt.number, attempt.resumed_from_step ?? 0]));
    this.#schedule();
  }

  /** Fetch which metrics there are, and the points of those that are shown. */
  async load() {
    this.#metrics.addNames((await listMetricNames(this.#jobId)).map(({ name }) => name));
    this.#picker.show(this.#metrics.names());
    await this.#fetch(this.#picker.chosen);
  }

  /** @param {{attempt: number, file: string, offset: number, next_offset: number, points: any[]}} event */
  append({ attempt, file, offset, next_offset: end, points }) {
    const place = `${attempt} ${file}`;
    const heard = this.#heard.get(place) ?? 0;
    this.#heard.set(place, Math.max(heard, end));
    if (offset > heard) this.load().catch((error) => console.warn("the metrics could not be read", error));
    const added = this.#metrics.append(attempt, points);
    if (added) {
      this.#picker.show(this.#metrics.names());
      this.#fetchChosen();
    }
    this.#schedule();
  }

  #fetchChosen() {
    const missing = this.#picker.chosen.filter((name) => !this.#metrics.has(name));
    this.#fetch(missing).catch((error) => console.warn("the metrics could not be read", error));
  }

  /** @param {string[]} names */
  async #fetch(names) {
    names.forEach((name) => this.#metrics.track(name));
    if (names.length) this.#metrics.load(await listSeries(this.#jobId, names));
    this.#schedule();
  }

  #schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setTimeout(() => {
      this.#scheduled = false;
      this.#draw().catch((error) => console.warn("the charts could not be drawn", error));
    }, REDRAW_MS);
  }

  async #draw() {
    if (!this.#metrics.names().length) return;
    this.#section.hidden = false;
    const chosen = this.#picker.chosen;
    const library = await plotly();
    const colours = themeColours(this.#section);
    const way = { axis: /** @type {Way["axis"]} */ (this.#axis.value), smoothing: Number(this.#smoothing.value), logarithmic: this.#log.checked };
    const charts = chosen.map((name) => /** @type {const} */ ([name, this.#charts.get(name) ?? this.#add(name)]));
    for (const [name, { figure }] of this.#charts) figure.hidden = !chosen.includes(name);
    for (const [name, { plot, latest, unseen: hidden }] of charts) {
      const parts = this.#metrics.parts(name, this.#resumedFrom);
      setText(latest, latestText(parts));
      setText(hidden, unseen(parts.flatMap(({ kept, redone }) => [...kept, ...redone]), way.logarithmic));
      const [scaled, title] = timed(parts);
      await library.react(plot, traces(parts, colours, way, scaled), layout(parts, colours, way, scaled, title), CONFIG);
    }
  }

  /** @param {string} name */
  #add(name) {
    const plot = h("div", { class: "plot" });
    const latest = h("span", { class: "latest" });
    const hidden = h("span", { class: "unseen" });
    const links = h(
      "span",
      { class: "links" },
      h("button", { type: "button", class: "link", "aria-label": `Save ${name} as CSV`, onclick: () => void this.#saveCsv(name) }, "CSV"),
      h("button", { type: "button", class: "link", "aria-label": `Save ${name} as PNG`, onclick: () => void this.#savePng(name, plot) }, "PNG"),
    );
    const figure = h("figure", { class: "chart" }, h("figcaption", {}, h("bdi", {}, name), latest, hidden, links), plot);
    byId("charts").append(figure);
    const chart = { figure, plot, latest, unseen: hidden };
    this.#charts.set(name, chart);
    this.#sizes.observe(plot);
    return chart;
  }

  /** @param {string} name */
  async #saveCsv(name) {
    const all = new Metrics();
    all.track(name);
    all.load(await listSeries(this.#jobId, [name], MOST_EXPORTED));
    saveAs(`${name}.csv`, new Blob([asCsv(all.parts(name, this.#resumedFrom))], { type: "text/csv" }));
  }

  /**
   * @param {string} name
   * @param {any} plot
   */
  async #savePng(name, plot) {
    const library = await plotly();
    const figure = { data: plot.data, layout: { ...plot.layout, paper_bgcolor: themeColours(this.#section).ground } };
    const picture = await library.toImage(figure, { format: "png", width: 960, height: 540, scale: 2 });
    saveAs(`${name}.png`, picture);
  }
}

/** @param {any[]} plots those that are drawn and seen are fitted to their place */
async function resize(plots) {
  const library = await plotly();
  for (const plot of plots) if (plot.data && plot.clientWidth) await library.Plots.resize(plot);
}

/** @param {Part[]} parts */
function latestText(parts) {
  const last = parts.at(-1)?.kept.at(-1);
  return last && last[3] !== null ? `${Number(last[3].toPrecision(5))} at step ${last[0]}` : "";
}

/** @typedef {{origin: number, unit: number}} Scale of the time axis, in seconds */

/**
 * @param {Part[]} parts
 * @returns {[Scale, string]}
 */
function timed(parts) {
  const times = parts.flatMap(({ kept, redone }) => [...kept.slice(0, 1), ...redone.slice(0, 1), ...kept.slice(-1), ...redone.slice(-1)]).map(([, , at]) => at);
  const origin = Math.min(...times);
  const [title, unit] = timeUnit(Math.max(...times) - origin);
  return [{ origin, unit }, title];
}

/**
 * Per attempt: what counts, faded what was done again, and behind a smoothed curve the values themselves.
 *
 * @param {Part[]} parts
 * @param {ReturnType<typeof themeColours>} colours
 * @param {Way} way
 * @param {Scale} scale
 */
function traces(parts, colours, way, scale) {
  const trace = (/** @type {import("./api.js").Point[]} */ points, /** @type {string} */ name, /** @type {object} */ line, weight = 0) => ({
    type: "scatter",
    mode: drawnAs(positions(points, way.axis, scale.origin, scale.unit)),
    name,
    x: positions(points, way.axis, scale.origin, scale.unit),
    y: weight ? smoothed(drawable(points), weight) : drawable(points),
    customdata: points.map(([step, , , value]) => [step, value]),
    line,
    marker: { color: colours.line, size: 5 },
    hovertemplate: `%{customdata[1]:.5g} · step %{customdata[0]} · ${name}<extra></extra>`,
  });
  const again = parts
    .filter((part) => part.redone.length)
    .map((part) => trace([...part.kept.slice(-1), ...part.redone], `attempt ${part.attempt}, done again`, { color: colours.redone, width: 2, dash: "dot" }));
  const raw = way.smoothing ? parts.map((part) => trace(part.kept, `attempt ${part.attempt}`, { color: colours.redone, width: 1 })) : [];
  const kept = parts.map((part) => trace(part.kept, `attempt ${part.attempt}`, { color: colours.line, width: 1.75 }, way.smoothing));
  return [...again, ...raw, ...kept];
}

/**
 * @param {Part[]} parts
 * @param {ReturnType<typeof themeColours>} colours
 * @param {Way} way
 * @param {Scale} scale
 * @param {string} unit name of the unit of time
 */
function layout(parts, colours, way, scale, unit) {
  const base = baseLayout(colours);
  const starts = parts.slice(1).flatMap((part) => {
    const x = positions(part.kept, way.axis, scale.origin, scale.unit)[0];
    return x === undefined || x === null ? [] : [{ attempt: part.attempt, x }];
  });
  return {
    ...base,
    uirevision: `${way.axis} ${way.logarithmic}`,
    xaxis: { ...base.xaxis, title: { ...base.xaxis.title, text: way.axis === "time" ? unit : way.axis } },
    yaxis: { ...base.yaxis, type: way.logarithmic ? "log" : "linear", exponentformat: "power" },
    shapes: starts.map(({ x }) => ({
      type: "line", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, line: { color: colours.redone, width: 1, dash: "dash" },
    })),
    annotations: starts.map(({ attempt, x }) => ({
      x, y: 1, yref: "paper", yanchor: "bottom", showarrow: false, text: `attempt ${attempt}`, font: { size: 10 },
    })),
  };
}
