/**
 * The charts below a table of results, and their controls: parallel coordinates of all columns, one column over another,
 * by what the rows are coloured, and the rows that were hidden.
 *
 * @typedef {import("./row-view.js").Dimension} Dimension
 * @typedef {import("./row-view.js").RowView} RowView
 */
import { byId, setOptions, setText } from "../shared/dom.js";
import { counted } from "../shared/format.js";
import { ParallelCoordinates } from "./parallel-coordinates.js";
import { Scatter } from "./scatter.js";

/** More lines and points than these take too long to draw, and nobody could tell them apart. */
const MAX_DRAWN = 500;

export class ResultCharts {
  #view;
  #parallel;
  #scatter;
  #x = byId("scatter-x", HTMLSelectElement);
  #y = byId("scatter-y", HTMLSelectElement);
  #colour = byId("colour-by", HTMLSelectElement);
  /** What the user has chosen. @type {Map<HTMLSelectElement, string>} */
  #chosen = new Map();
  /** @type {Dimension[]} */
  #dimensions = [];
  #rows = 0;

  /** @param {RowView} view */
  constructor(view) {
    this.#view = view;
    this.#parallel = new ParallelCoordinates(byId("parallel"), view);
    this.#scatter = new Scatter(byId("scatter"), view);
    for (const select of [this.#x, this.#y]) {
      select.addEventListener("change", () => {
        this.#chosen.set(select, select.value);
        this.#drawScatter();
      });
    }
    this.#colour.addEventListener("change", () => view.colour(this.#colour.value));
    byId("show-all-rows").addEventListener("click", () => view.showAll());
  }

  /** @param {Dimension[]} dimensions @param {number} rows */
  show(dimensions, rows) {
    this.#rows = Math.min(rows, MAX_DRAWN);
    this.#dimensions = dimensions;
    const varying = dimensions.filter(({ values }) => new Set(values.map(String)).size > 1);
    setOptions(this.#colour, [["", "each row"], ...varying.filter(({ isResult }) => !isResult).map(({ name }) => [name, name])], this.#view.colourBy);
    const parameter = varying.find(({ isResult }) => !isResult)?.name ?? "";
    const results = varying.filter(({ isResult }) => isResult);
    const result = (results.find(({ best }) => best.length) ?? results[0] ?? varying[1])?.name ?? "";
    setOptions(this.#x, varying.map(({ name }) => [name, name]), this.#chosen.get(this.#x) ?? parameter);
    setOptions(this.#y, varying.map(({ name }) => [name, name]), this.#chosen.get(this.#y) ?? result);
    byId("row-charts").hidden = varying.length < 2 || rows < 2;
    const hidden = Array.from({ length: rows }, (_, row) => this.#view.look(row)).filter(({ isHidden }) => isHidden).length;
    byId("hidden-rows").hidden = hidden === 0;
    setText(byId("hidden-count"), `${counted(hidden, "row is", "rows are")} hidden.`);
    this.#parallel.show(dimensions, this.#rows);
    this.#drawScatter();
  }

  /** Rows have another look. */
  restyle() {
    this.#parallel.restyle();
    this.#scatter.restyle();
  }

  #drawScatter() {
    const find = (/** @type {HTMLSelectElement} */ { value }) => this.#dimensions.find(({ name }) => name === value);
    const [x, y] = [find(this.#x), find(this.#y)];
    if (x && y) this.#scatter.show(x, y, this.#rows);
  }
}
