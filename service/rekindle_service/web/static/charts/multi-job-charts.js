/**
 * Curves of several jobs in one chart for each chosen metric, with a colour for each row of a table.
 *
 * The legend is the table's first column.
 *
 * @import { CurvePublic as Curve } from "../shared/api-types.d.ts"
 * @typedef {object} Source
 * @property {string[]} names of all metrics
 * @property {Map<string, number>} rows row of each job in the table
 * @property {(names: string[]) => Promise<Curve[]>} read
 */
import { byId, h } from "../shared/dom.js";
import { axisOf, pointText, positions, smoothed, valuesOf } from "./chart-data.js";
import { ChartGrid } from "./chart-grid.js";
import { MetricPicker } from "./metric-picker.js";
import { sortMetrics } from "./metric-store.js";
import { colourOf } from "./palette.js";

/** The colour of a row and its curve. @param {number} row from 0 @param {number} rows */
export function swatch(row, rows) {
  const node = h("span", { class: "swatch" });
  node.style.background = colourOf(row, rows);
  return node;
}

export class MultiJobCharts {
  #section = byId("curves");
  #grid = new ChartGrid(byId("curve-charts"));
  #picker = new MetricPicker(() => void this.#refresh(), () => this.#draw());
  /** @type {Source} */
  #source = { names: [], rows: new Map(), read: async () => [] };
  /** @type {Curve[]} */
  #curves = [];
  #requests = 0;

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
    this.#draw();
  }

  #draw() {
    this.#section.hidden = this.#source.names.length === 0;
    this.#grid.draw(this.#picker.chosen.map((name) => this.#chart(name)));
  }

  /** @param {string} name @returns {import("./chart-grid.js").Chart} */
  #chart(name) {
    const curves = this.#curves.filter((curve) => curve.name === name && curve.points.length);
    const { axis, logarithmic, smoothing } = this.#picker.style;
    const rows = 1 + Math.max(0, ...this.#source.rows.values());
    return {
      name,
      content: {
        series: curves.map(({ job, points }) => seriesOf(this.#source.rows.get(job) ?? 0, rows, points, axis, smoothing)),
        x: axisOf(axis, "its first value"),
        y: { log: logarithmic },
      },
    };
  }
}

/**
 * @param {number} row @param {number} rows @param {Curve["points"]} points @param {import("./chart-data.js").Axis} axis @param {number} smoothing
 * @returns {import("./chart-frame.js").Series}
 */
function seriesOf(row, rows, points, axis, smoothing) {
  const x = positions(points, axis, points[0][2]);
  const y = smoothed(valuesOf(points), smoothing);
  return { name: `row ${row + 1}`, x, y, colour: colourOf(row, rows), width: 1.5, describe: (index) => pointText(points[index], y[index], axis) };
}
