/**
 * Curves of several jobs in one chart for each chosen metric, with a colour for each row of a table.
 *
 * The legend is the table's first column. No text of a user reaches Plotly, which interprets markup in labels.
 *
 * @import { CurvePublic as Curve } from "../shared/api-types.d.ts"
 * @typedef {object} Source
 * @property {string[]} names of all metrics
 * @property {Map<string, number>} rows row of each job in the table
 * @property {(names: string[]) => Promise<Curve[]>} read
 */
import { byId, h } from "../shared/dom.js";
import { onThemeChange } from "../shared/theme.js";
import { drawMode, drawable, positions, smoothed, timeUnit } from "./chart-data.js";
import { ChartGrid } from "./chart-grid.js";
import { MetricPicker } from "./metric-picker.js";
import { sortMetrics } from "./metric-store.js";
import { baseLayout, themeColours } from "./plotly-loader.js";

/** Colours of rows and curves; a ninth row has the first one's again. */
const COLOURS = 8;

/** The colour of a row and its curve. @param {number} row */
export const swatch = (row) => h("span", { class: "swatch", "data-curve": row % COLOURS });

export class MultiJobCharts {
  #section = byId("curves");
  #grid = new ChartGrid(byId("curve-charts"));
  #picker = new MetricPicker(() => void this.#refresh(), () => void this.#draw());
  /** @type {Source} */
  #source = { names: [], rows: new Map(), read: async () => [] };
  /** @type {Curve[]} */
  #curves = [];
  #requests = 0;

  constructor() {
    onThemeChange(() => void this.#draw());
  }

  /** @param {Source} source */
  async show(source) {
    this.#source = { ...source, names: sortMetrics([...source.names]) };
    this.#picker.show(this.#source.names);
    await this.#refresh();
  }

  async #refresh() {
    const request = ++this.#requests;
    const chosen = this.#picker.chosen;
    const curves = chosen.length ? await this.#source.read(chosen) : [];
    if (request !== this.#requests) return; // other metrics or jobs were chosen meanwhile
    this.#curves = curves;
    await this.#draw();
  }

  async #draw() {
    this.#section.hidden = this.#source.names.length === 0;
    await this.#grid.draw(this.#picker.chosen.map((name) => this.#chart(name)));
  }

  /** @param {string} name @returns {import("./chart-grid.js").Chart} */
  #chart(name) {
    const curves = this.#curves.filter((curve) => curve.name === name && curve.points.length);
    const { axis, logarithmic, smoothing } = this.#picker.style;
    const longest = Math.max(1, ...curves.map(({ points }) => (points.at(-1)?.[2] ?? 0) - points[0][2]));
    const [unit, seconds] = timeUnit(longest);
    const layout = baseLayout(themeColours(this.#section), axis === "time" ? `${unit} since its first value` : axis);
    return {
      name,
      traces: curves.map(({ job, points }) => trace(this.#source.rows.get(job) ?? 0, points, positions(points, axis, points[0][2], seconds), smoothing)),
      layout: { ...layout, yaxis: { ...layout.yaxis, type: logarithmic ? "log" : "linear" }, uirevision: `${axis} ${logarithmic}` },
    };
  }
}

/** @param {number} row @param {Curve["points"]} points @param {(number | null)[]} x @param {number} smoothing */
function trace(row, points, x, smoothing) {
  const shown = document.querySelector(`.swatch[data-curve="${row % COLOURS}"]`);
  const colour = shown ? getComputedStyle(shown).backgroundColor : "gray";
  return {
    type: "scatter",
    mode: drawMode(x),
    x,
    y: smoothed(drawable(points), smoothing),
    customdata: points.map(([step]) => step),
    line: { color: colour, width: 1.5 },
    marker: { color: colour, size: 6 },
    hovertemplate: `%{y:.5g} · step %{customdata} · row ${row + 1}<extra></extra>`,
  };
}
