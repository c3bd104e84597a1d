/**
 * Curves of several jobs in one chart for each chosen metric, with the colours that their rows have in a table.
 *
 * @import { CurvePublic as Curve } from "../shared/api-types.d.ts"
 * @typedef {import("../results/row-view.js").RowView} RowView
 * @typedef {object} Source
 * @property {string[]} names of all metrics, the most important first
 * @property {(name: string) => "min" | "max" | null} goal
 * @property {Map<string, number>} rows row of each job in the table
 * @property {(names: string[]) => Promise<Curve[]>} read
 */
import { byId } from "../shared/dom.js";
import { count } from "../shared/format.js";
import { axisOf, bestPoint, countedBy, epochsOf, pointText, smoothed, unitOf, valuesOf } from "./chart-data.js";
import { ChartGrid } from "./chart-grid.js";
import { MetricPicker } from "./metric-picker.js";

export class MultiJobCharts {
  #view;
  #section = byId("curves");
  #grid = new ChartGrid(byId("curve-charts"));
  #picker = new MetricPicker(() => void this.#refresh(), () => this.draw());
  /** @type {Source} */
  #source = { names: [], goal: () => null, rows: new Map(), read: async () => [] };
  /** @type {Curve[]} */
  #curves = [];
  /** By job, null where too little is known of them. @type {Map<string, import("./chart-data.js").Epochs | null>} */
  #epochs = new Map();
  #requests = 0;
  /** Step from which the jobs differ, to be set before they are drawn. @type {number | null} */
  parting = null;

  /** @param {RowView} view */
  constructor(view) {
    this.#view = view;
  }

  /** @param {Source} source */
  async show(source) {
    this.#source = source;
    this.#picker.show(source.names);
    await this.#refresh();
  }

  async #refresh() {
    const request = ++this.#requests;
    const chosen = this.#picker.chosen;
    const curves = chosen.length ? await this.#source.read(chosen) : [];
    if (request !== this.#requests) return; // other metrics or jobs were chosen meanwhile
    this.#curves = curves;
    const byJob = [...Map.groupBy(curves, ({ job }) => job)];
    this.#epochs = new Map(byJob.map(([job, own]) => [job, epochsOf({ steps: null, epochs: null }, own.flatMap(({ points }) => points))]));
    this.draw();
  }

  /** Again: rows have another look. */
  draw() {
    this.#section.hidden = this.#source.names.length === 0;
    this.#grid.draw(this.#picker.chosen.map((name) => this.#chart(name)));
  }

  /** @param {string} name @returns {import("./chart-grid.js").Chart} */
  #chart(name) {
    const { axis, logarithmic } = this.#picker.style;
    const curves = this.#curves.filter((curve) => curve.name === name && curve.points.length);
    return { name, latest: this.#bestText(name, curves), content: { series: curves.flatMap((curve) => this.#series(curve)), marks: this.#marks(curves), x: axisOf(axis === "step" ? countedBy(curves.flatMap(({ points }) => points)) : axis, "its first value"), y: { log: logarithmic } } };
  }

  /** @param {Curve[]} curves @returns {import("./chart-frame.js").Mark[]} */
  #marks([first]) {
    const point = first?.points.findIndex(([step]) => this.parting !== null && step >= this.parting) ?? -1;
    const x = point < 0 ? null : this.#positions(first)[point];
    return x === null ? [] : [{ x, label: `differ at step ${count(this.parting)}`, kind: "failure" }];
  }

  /** The best value of all that are shown. @param {string} name @param {Curve[]} curves */
  #bestText(name, curves) {
    const goal = this.#source.goal(name);
    const found = curves.flatMap(({ job, points }) => {
      const { isHidden, name: row } = this.#view.look(this.#source.rows.get(job) ?? 0);
      const best = isHidden ? null : bestPoint(points, goal);
      return best ? [{ row, best }] : [];
    });
    const best = bestPoint(found.map((each) => each.best), goal);
    const row = found.find((each) => each.best === best)?.row;
    return best ? `${goal} ${pointText(best, best[3], "time", countedBy(curves.flatMap(({ points }) => points)))}${found.length > 1 ? `, ${row}` : ""}` : "";
  }

  /** None for a hidden row. @param {Curve} curve @returns {import("./chart-frame.js").Series[]} */
  #series(curve) {
    const { job, points } = curve;
    const row = this.#source.rows.get(job) ?? 0;
    const { name, colour, isHidden, isFaded } = this.#view.look(row);
    if (isHidden) return [];
    const { axis, smoothing } = this.#picker.style;
    const y = smoothed(valuesOf(points), smoothing);
    const describe = (/** @type {number} */ index) => pointText(points[index], y[index], axis, countedBy(points));
    return [{ name, x: this.#positions(curve), y, colour, width: this.#view.highlighted === row ? 3 : 1.5, faded: isFaded, describe }];
  }

  /** Where on the axis each point is; null where its epoch is not known. @param {Curve} curve */
  #positions({ job, points }) {
    const { axis } = this.#picker.style;
    const { by, ofStep } = unitOf(axis, this.#epochs.get(job) ?? null);
    return points.map(([step, , at]) => (by === "time" ? at - points[0][2] : by === axis ? ofStep(step) : null));
  }
}
