/**
 * Curves of several jobs, laid over each other: a chart for each metric that is chosen, a colour for each row of a table.
 *
 * The legend is the table's first column. No text of a user reaches Plotly, which reads markup in labels.
 *
 * @typedef {import("./api.js").Curve} Curve
 *
 * @typedef {object} Source
 * @property {string[]} names of all metrics
 * @property {Map<string, number>} rows row of each job in the table
 * @property {(names: string[]) => Promise<Curve[]>} read
 */
import { CURVE_COLOURS } from "./comparison.js";
import { drawable, drawnAs, positions, smoothed, timeUnit } from "./curve.js";
import { arrange, byId, h } from "./dom.js";
import { MetricPicker } from "./metric-picker.js";
import { CONFIG, baseLayout, plotly, themeColours } from "./plot.js";
import { onThemeChange } from "./theme.js";

export class Overlay {
  #section = byId("curves");
  #grid = byId("curve-charts");
  #axis = /** @type {HTMLSelectElement} */ (byId("chart-axis"));
  #smoothing = /** @type {HTMLInputElement} */ (byId("chart-smoothing"));
  #log = /** @type {HTMLInputElement} */ (byId("chart-log"));
  #picker = new MetricPicker(() => void this.#refresh());
  /** @type {Source} */
  #source = { names: [], rows: new Map(), read: async () => [] };
  /** @type {Curve[]} */
  #curves = [];
  /** @type {Map<string, {figure: HTMLElement, plot: HTMLElement}>} */
  #charts = new Map();
  #asked = 0;

  constructor() {
    for (const control of [this.#axis, this.#smoothing, this.#log]) control.addEventListener("input", () => void this.#draw());
    onThemeChange(() => void this.#draw());
  }

  /** @param {Source} source */
  async show(source) {
    this.#source = { ...source, names: [...source.names].sort((one, other) => weight(one) - weight(other)) };
    this.#picker.show(this.#source.names);
    await this.#refresh();
  }

  async #refresh() {
    const asked = ++this.#asked;
    const chosen = this.#picker.chosen;
    const curves = chosen.length ? await this.#source.read(chosen) : [];
    if (asked !== this.#asked) return; // another choice or other jobs meanwhile
    this.#curves = curves;
    await this.#draw();
  }

  async #draw() {
    this.#section.hidden = this.#source.names.length === 0;
    const chosen = this.#picker.chosen;
    arrange(this.#grid, chosen.map((name) => this.#chart(name).figure));
    if (!chosen.length) return;
    const library = await plotly();
    for (const name of chosen) await library.react(this.#chart(name).plot, ...this.#drawing(name), CONFIG);
  }

  /** @param {string} name */
  #chart(name) {
    const known = this.#charts.get(name);
    if (known) return known;
    const plot = h("div", { class: "plot" });
    const figure = h("figure", { class: "chart" }, h("figcaption", {}, h("bdi", {}, name)), plot);
    this.#charts.set(name, { figure, plot });
    return { figure, plot };
  }

  /**
   * @param {string} name
   * @returns {[traces: object[], layout: object]}
   */
  #drawing(name) {
    const curves = this.#curves.filter((curve) => curve.name === name && curve.points.length);
    const axis = /** @type {import("./curve.js").Axis} */ (this.#axis.value);
    const longest = Math.max(1, ...curves.map(({ points }) => (points.at(-1)?.[2] ?? 0) - points[0][2]));
    const [unit, seconds] = timeUnit(longest);
    const layout = baseLayout(themeColours(this.#section));
    const title = axis === "time" ? `${unit} since its first value` : axis;
    return [
      curves.map(({ job, points }) => this.#trace(this.#source.rows.get(job) ?? 0, points, positions(points, axis, points[0][2], seconds))),
      {
        ...layout,
        xaxis: { ...layout.xaxis, title: { ...layout.xaxis.title, text: title } },
        yaxis: { ...layout.yaxis, type: this.#log.checked ? "log" : "linear" },
        uirevision: `${axis} ${this.#log.checked}`,
      },
    ];
  }

  /**
   * @param {number} row
   * @param {import("./api.js").Point[]} points
   * @param {(number | null)[]} x
   */
  #trace(row, points, x) {
    const colour = curveColour(row);
    return {
      type: "scatter",
      mode: drawnAs(x),
      x,
      y: smoothed(drawable(points), Number(this.#smoothing.value)),
      customdata: points.map(([step]) => step),
      line: { color: colour, width: 1.5 },
      marker: { color: colour, size: 6 },
      hovertemplate: `%{y:.5g} · step %{customdata} · row ${row + 1}<extra></extra>`,
    };
  }
}

/** The colour that the table shows beside that row. @param {number} row */
function curveColour(row) {
  const swatch = document.querySelector(`.swatch[data-curve="${row % CURVE_COLOURS}"]`);
  return swatch ? getComputedStyle(swatch).backgroundColor : "gray";
}

/** Losses first, then accuracies, then the rest as they came. @param {string} name */
function weight(name) {
  return /loss/i.test(name) ? 0 : /acc/i.test(name) ? 1 : 2;
}
