/**
 * A grid of charts over one axis, found by their name: created once and redrawn in place. They share cursor and range.
 *
 * @import { Content, Range } from "./chart-frame.js"
 * @import { Options } from "./line-chart.js"
 * @typedef {object} Chart
 * @property {string} name
 * @property {string} [latest] value, in words
 * @property {string} [warning] what cannot be seen in the chart
 * @property {Content} content
 * @typedef {{figure: HTMLElement, chart: LineChart, latest: HTMLElement, warning: HTMLElement}} Figure
 */
import { h, reorderChildren, setText } from "../shared/dom.js";
import { LineChart } from "./line-chart.js";

export class ChartGrid {
  #grid;
  #tools;
  #options;
  /** @type {Map<string, Figure>} */
  #figures = new Map();

  /**
   * @param {HTMLElement} grid
   * @param {(name: string, chart: LineChart) => HTMLElement | null} [tools] buttons of each chart
   * @param {Options} [options] of every chart; its functions are called for each of them
   */
  constructor(grid, tools = () => null, options = {}) {
    this.#grid = grid;
    this.#tools = tools;
    this.#options = options;
  }

  /** Show exactly these charts, in this order. @param {Chart[]} charts */
  draw(charts) {
    reorderChildren(this.#grid, charts.map(({ name }) => this.#figure(name).figure));
    for (const { name, latest = "", warning = "", content } of charts) {
      const figure = this.#figure(name);
      setText(figure.latest, latest);
      setText(figure.warning, warning);
      figure.chart.draw(content);
    }
  }

  /** @param {number | null} x in the unit of the axis */
  setCursor(x) {
    this.#figures.forEach(({ chart }) => chart.setCursor(x));
  }

  /** @param {Range | null} range in the unit of the axis; null for everything */
  setRange(range) {
    this.#figures.forEach(({ chart }) => chart.setRange(range));
  }

  /** @param {string} name */
  #figure(name) {
    const known = this.#figures.get(name);
    if (known) return known;
    const plot = h("div", { class: "plot" });
    const chart = new LineChart(plot, {
      label: `Chart of ${name}`,
      ...this.#options,
      onCursor: (x) => {
        this.setCursor(x);
        this.#options.onCursor?.(x);
      },
      onRange: (range) => {
        this.setRange(range);
        this.#options.onRange?.(range);
      },
    });
    const latest = h("span", { class: "latest" });
    const warning = h("span", { class: "warning" });
    const caption = h("figcaption", {}, h("bdi", {}, name), latest, warning, this.#tools(name, chart));
    const made = { figure: h("figure", { class: "chart" }, caption, plot), chart, latest, warning };
    this.#figures.set(name, made);
    return made;
  }
}
