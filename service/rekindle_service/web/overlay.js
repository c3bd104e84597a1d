/**
 * Curves of all jobs of an experiment, laid over each other: a chart for each metric, a colour for each row.
 *
 * The legend is the table's first column. No text of a user reaches Plotly, which reads markup in labels.
 */
import { CURVE_COLOURS } from "./comparison.js";
import { h } from "./dom.js";
import { CONFIG, baseLayout, plotly, themeColours } from "./plot.js";
import { onThemeChange } from "./theme.js";

const SHOWN_AT_FIRST = 2;

export class Overlay {
  #section;
  #picker;
  #grid;
  /** @type {import("./api.js").Curve[]} */
  #curves = [];
  /** @type {Map<string, number>} row of each job */
  #rows = new Map();
  /** @type {Map<string, {figure: HTMLElement, plot: HTMLElement, box: HTMLInputElement}>} */
  #charts = new Map();

  /**
   * @param {HTMLElement} section hidden while there is nothing to draw
   * @param {HTMLElement} picker
   * @param {HTMLElement} grid
   */
  constructor(section, picker, grid) {
    this.#section = section;
    this.#picker = picker;
    this.#grid = grid;
    onThemeChange(() => void this.#draw());
  }

  /**
   * @param {import("./api.js").Experiment} experiment
   * @param {import("./api.js").Curve[]} curves
   */
  async show(experiment, curves) {
    this.#curves = curves;
    this.#rows = new Map(experiment.rows.flatMap((row, index) => row.cells.map((cell) => [experiment.cells[cell].job, index])));
    await this.#draw();
  }

  async #draw() {
    const names = [...new Set(this.#curves.map(({ name }) => name))].sort((one, other) => weight(one) - weight(other));
    if (!names.length) return;
    names.forEach((name) => this.#charts.has(name) || this.#add(name));
    this.#section.hidden = false;
    const library = await plotly();
    const layout = baseLayout(themeColours(this.#section));
    for (const [name, { figure, plot, box }] of this.#charts) {
      figure.hidden = !box.checked;
      if (box.checked) await library.react(plot, this.#traces(name), layout, CONFIG);
    }
  }

  /** @param {string} name */
  #add(name) {
    const box = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", checked: this.#charts.size < SHOWN_AT_FIRST }));
    box.addEventListener("change", () => void this.#draw());
    const plot = h("div", { class: "plot" });
    const figure = h("figure", { class: "chart" }, h("figcaption", {}, h("bdi", {}, name)), plot);
    this.#picker.append(h("label", {}, box, h("bdi", {}, name)));
    this.#grid.append(figure);
    this.#charts.set(name, { figure, plot, box });
  }

  /** @param {string} name */
  #traces(name) {
    const chosen = this.#curves.filter((curve) => curve.name === name);
    return chosen.map(({ job, points }) => {
      const row = this.#rows.get(job) ?? 0;
      const colour = curveColour(row);
      return {
        type: "scatter",
        mode: points.length === 1 ? "markers" : "lines",
        x: points.map(([step]) => step),
        y: points.map(([, , , value]) => value),
        line: { color: colour, width: 1.5 },
        marker: { color: colour, size: 6 },
        hovertemplate: `%{y:.5g} · step %{x} · row ${row + 1}<extra></extra>`,
      };
    });
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
