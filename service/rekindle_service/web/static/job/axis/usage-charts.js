/**
 * What all ranks of a job used together, over time: processor, memory, GPUs.
 *
 * @import { AttemptLanes, Lanes } from "../../shared/api-types.d.ts"
 * @import { ChartGrid } from "../../charts/chart-grid.js"
 * @import { Content } from "../../charts/chart-frame.js"
 * @import { Span, Unit } from "./axis-model.js"
 * @import { Axis } from "./view-state.js"
 */
import { byId } from "../../shared/dom.js";
import { significant } from "../../shared/format.js";

const GIGABYTE = 1e9;
const CORE = 100; // percent

/** Name, unit and values of each chart. @type {[string, string, (attempt: AttemptLanes) => (number | null)[]][]} */
const CHARTS = [
  ["CPU", "cores", ({ totals }) => totals.cpu_percent.map((percent) => percent && Math.round(percent) / CORE)],
  ["Memory", "GB", ({ totals }) => totals.rss_bytes.map((bytes) => (bytes ? bytes / GIGABYTE : null))],
  ["GPU utilization", "%", ({ totals }) => totals.gpu_percent],
  ["GPU memory", "GB", ({ totals }) => totals.gpu_memory_bytes.map((bytes) => bytes && bytes / GIGABYTE)],
];

/** @param {ChartGrid} grid @param {Lanes} lanes @param {Unit} unit @param {Span} whole */
export function drawUsage(grid, lanes, unit, whole) {
  const charts = CHARTS.flatMap(([name, symbol, valuesOf]) => {
    const series = lanes.attempts.map((attempt) => ({ name: `attempt ${attempt.attempt}`, x: positionsOf(attempt, unit), y: valuesOf(attempt) }));
    const values = series.flatMap(({ y }) => y).filter((value) => value !== null);
    return values.length ? [{ name, latest: `${significant(values[values.length - 1])} ${symbol}`, content: contentOf(series, symbol, unit.by, whole) }] : [];
  });
  byId("usage").hidden = !charts.length;
  grid.draw(charts);
}

/** @param {AttemptLanes} attempt @param {Unit} unit @returns {(number | null)[]} */
function positionsOf({ at, ranks }, { by, ofStep }) {
  if (by === "time") return at;
  const steps = ranks.find(({ step }) => step.some((each) => each !== null))?.step ?? at.map(() => null);
  return steps.map((step) => step && ofStep(step));
}

/** @param {Content["series"]} series @param {string} symbol of the unit of the values @param {Axis} by @param {Span} whole @returns {Content} */
function contentOf(series, symbol, by, [min, max]) {
  return { series, x: { ...axisContent(by), min, max }, y: { unit: symbol, min: 0 } };
}

/** The axis of a chart. @param {Axis} by @returns {Content["x"]} */
export const axisContent = (by) => (by === "time" ? { kind: "time" } : { kind: "number", title: by });
