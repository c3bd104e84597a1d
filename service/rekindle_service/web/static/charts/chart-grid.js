/**
 * A grid of charts over one axis, found by their name: created once and redrawn in place. They share cursor and range.
 *
 * @import { Content, Range } from "./chart-frame.js"
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
  /** @type {Map<string, Figure>} */
  #figures = new Map();

  /**
   * @param {HTMLElement} grid
   * @param {(name: string, chart: LineChart) => HTMLElement | null} [tools] buttons of each chart
   */
  constructor(grid, tools = () => null) {
    this.#grid = grid;
    this.#tools = tools;
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

  /** @param {string} name */
  #figure(name) {
    const known = this.#figures.get(name);
    if (known) return known;
    const plot = h("div", { class: "plot" });
    const chart = new LineChart(plot, {
      label: `Chart of ${name}`,
      onCursor: (x) => this.#figures.forEach((other) => other.chart.setCursor(x)),
      onRange: (range) => this.#figures.forEach((other) => other.chart.setRange(range)),
    });
    const latest = h("span", { class: "latest" });
    const warning = h("span", { class: "warning" });
    const caption = h("figcaption", {}, h("bdi", {}, name), latest, warning, this.#tools(name, chart));
    const made = { figure: h("figure", { class: "chart" }, caption, plot), chart, latest, warning };
    this.#figures.set(name, made);
    return made;
  }
}
