/**
 * A grid of charts, found by their name: created once, redrawn in place, and refitted when their width changes.
 *
 * Names never reach Plotly, which interprets markup in labels: they are headings of the page's own.
 *
 * @typedef {object} Chart
 * @property {string} name
 * @property {string} [latest] value, in words
 * @property {string} [warning] what cannot be seen in the chart
 * @property {object[]} traces
 * @property {object} layout
 * @typedef {{figure: HTMLElement, plot: HTMLElement, latest: HTMLElement, warning: HTMLElement}} Figure
 */
import { h, reorderChildren, setText } from "../shared/dom.js";
import { CONFIG, plotly } from "./plotly-loader.js";

export class ChartGrid {
  #grid;
  #tools;
  /** @type {Map<string, Figure>} */
  #figures = new Map();
  /** A chart gets narrower when another one appears next to it, which Plotly does not notice. */
  #sizes = new ResizeObserver((entries) => void resize(entries.map(({ target }) => target)));

  /**
   * @param {HTMLElement} grid
   * @param {(name: string, plot: HTMLElement) => HTMLElement | null} [tools] buttons of each chart
   */
  constructor(grid, tools = () => null) {
    this.#grid = grid;
    this.#tools = tools;
  }

  /** Show exactly these charts, in this order. @param {Chart[]} charts */
  async draw(charts) {
    reorderChildren(this.#grid, charts.map(({ name }) => this.#figure(name).figure));
    if (!charts.length) return;
    const library = await plotly();
    for (const { name, latest = "", warning = "", traces, layout } of charts) {
      const figure = this.#figure(name);
      setText(figure.latest, latest);
      setText(figure.warning, warning);
      await library.react(figure.plot, traces, layout, CONFIG);
    }
  }

  /** @param {string} name */
  #figure(name) {
    const known = this.#figures.get(name);
    if (known) return known;
    const plot = h("div", { class: "plot" });
    const latest = h("span", { class: "latest" });
    const warning = h("span", { class: "warning" });
    const caption = h("figcaption", {}, h("bdi", {}, name), latest, warning, this.#tools(name, plot));
    const made = { figure: h("figure", { class: "chart" }, caption, plot), plot, latest, warning };
    this.#figures.set(name, made);
    this.#sizes.observe(plot);
    return made;
  }
}

/** @param {any[]} plots those that are drawn and visible are fitted to their place */
async function resize(plots) {
  const library = await plotly();
  for (const plot of plots) if (plot.data && plot.clientWidth) await library.Plots.resize(plot);
}
