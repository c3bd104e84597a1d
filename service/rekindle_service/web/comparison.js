/** The table of an experiment: a row for each combination of parameters, with links to its jobs. */
import { badge, stateWord } from "./badge.js";
import { h, redraw } from "./dom.js";
import { NONE } from "./format.js";

/** Colours of rows and curves; a ninth row has the first one's again. */
export const CURVE_COLOURS = 8;

/**
 * @param {HTMLElement} head
 * @param {HTMLElement} body
 * @param {import("./api.js").Experiment} experiment
 */
export function showComparison(head, body, experiment) {
  const { parameters, measures, rows, cells } = experiment;
  redraw(head, [
    h(
      "tr",
      {},
      h("th", { scope: "col" }, h("span", { class: "hidden" }, "Colour")),
      ...parameters.map((name) => h("th", { scope: "col" }, h("bdi", {}, name))),
      ...measures.map((name) => h("th", { scope: "col", class: "value" }, h("bdi", {}, name))),
      h("th", { scope: "col" }, "Jobs"),
    ),
  ]);
  redraw(
    body,
    rows.map((row, index) =>
      h(
        "tr",
        {},
        h("td", {}, h("span", { class: "swatch", "data-curve": index % CURVE_COLOURS })),
        ...parameters.map((name) => h("td", {}, h("bdi", {}, name in row.parameters ? spoken(row.parameters[name]) : ""))),
        ...row.values.map((value, column) => valueCell(value, row.spread[column])),
        h("td", {}, h("span", { class: "jobs-of" }, ...row.cells.map((cell) => jobLink(cells[cell])))),
      ),
    ),
  );
}

/**
 * @param {number | null} value
 * @param {[number, number] | null} spread
 */
function valueCell(value, spread) {
  const within = spread && h("span", { class: "spread" }, ` ${figure(spread[0])} to ${figure(spread[1])}`);
  return h("td", { class: "value" }, value === null ? NONE : figure(value), within);
}

/** @param {import("./api.js").Cell} cell */
function jobLink(cell) {
  const word = stateWord(/** @type {import("./api.js").Job} */ (/** @type {unknown} */ (cell)));
  return h("a", { href: `/jobs/${encodeURIComponent(cell.job)}`, title: `job ${cell.number}`, "data-focus": cell.job }, badge(word));
}

/**
 * Four digits that count.
 *
 * @param {number} value
 */
export function figure(value) {
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
}

/** @param {string | number | boolean | null} value */
export function spoken(value) {
  return value === true ? "yes" : value === false ? "no" : value === null ? "not given" : String(value);
}
