/**
 * Charts of a job's metrics: the chosen ones, with one curve per attempt, kept up to date by the event stream.
 *
 * @import { AttemptPublic as Attempt, MetricName } from "../shared/api-types.d.ts"
 * @import { Unit } from "../charts/chart-data.js"
 * @import { ChartStyle } from "../charts/metric-picker.js"
 * @import { Part } from "../charts/metric-store.js"
 * @import { Mark, Series } from "../charts/chart-frame.js"
 * @import { LineChart } from "../charts/line-chart.js"
 * @import { TimeAxis } from "./axis/time-axis.js"
 */
import { asCsv, bestPoint, countedBy, missingValues, pointText, smoothed, valuesOf } from "../charts/chart-data.js";
import { ChartGrid } from "../charts/chart-grid.js";
import { MetricPicker } from "../charts/metric-picker.js";
import { MetricStore, resumeSteps } from "../charts/metric-store.js";
import { call, warn } from "../shared/api.js";
import { linkTo } from "../log/log-permalink.js";
import { byId, h } from "../shared/dom.js";
import { counted, secondsSince } from "../shared/format.js";
import { DebouncedRefresh, Throttle } from "../shared/timing.js";
import { secondsOf } from "./axis/axis-model.js";

/** Between two drawings of points that the stream brings. */
const REDRAW_INTERVAL_MS = 500;
/** In which the stream begins with an event of each file. */
const RELOAD_DELAY_MS = 250;
const MAX_POINTS = 1000;
const MAX_EXPORTED = 100_000;
/** The file of what was read from the output, in an event. */
const PRINTED = "printed.jsonl";
/** After which a script that prints metrics has usually printed some. */
const HINT_AFTER_SECONDS = 60;

export class JobCharts {
  #jobId;
  #section = byId("metrics");
  #axis;
  #grid;
  #metrics = new MetricStore();
  #picker = new MetricPicker(() => this.#fetchMissing(), () => this.#redraw.now());
  /** @type {Map<number, number>} */
  #resumedFrom = new Map();
  /** @type {Map<string, number>} byte up to which the stream has delivered each file of metrics */
  #received = new Map();
  /** @type {Map<string, HTMLAnchorElement>} by metric, the link to its latest line in the output */
  #lines = new Map();
  /** @type {Map<string, MetricName["goal"]>} */
  #goals = new Map();
  /** @type {Attempt[]} */
  #attempts = [];
  /** The names and points have been requested at least once. */
  #isRequested = false;
  #redraw = new Throttle(() => this.#draw(), REDRAW_INTERVAL_MS);
  #reload = new DebouncedRefresh(() => this.load(), RELOAD_DELAY_MS);

  /** @param {string} jobId @param {TimeAxis} axis on which the charts are drawn */
  constructor(jobId, axis) {
    this.#jobId = jobId;
    this.#axis = axis;
    this.#grid = new ChartGrid(byId("charts"), (name, chart) => this.#tools(name, chart), axis.chartOptions(160));
    axis.attach(this.#grid, () => this.#redraw.now(), (attempt) => this.#metrics.stepTimes(attempt));
  }

  /** @param {Attempt[]} attempts */
  setAttempts(attempts) {
    this.#resumedFrom = resumeSteps(attempts);
    this.#attempts = attempts;
    this.#redraw.now();
  }

  /** Fetch which metrics there are, and the points of those that are shown. */
  async load() {
    this.#isRequested = true;
    const { items } = await call("GET /jobs/{job_id}/metrics/names", { job_id: this.#jobId });
    this.#metrics.addNames(items);
    this.#goals = new Map(items.map(({ name, goal }) => [name, goal]));
    items.forEach((item) => this.#showLine(item));
    this.#picker.show(this.#metrics.names());
    await this.#fetch(this.#picker.chosen);
  }

  /** @param {{attempt: number, file: string, offset: number, next_offset: number, points: any[]}} event */
  append({ attempt, file, offset, next_offset: end, points }) {
    const key = `${attempt} ${file}`;
    const received = this.#received.get(key) ?? 0;
    this.#received.set(key, Math.max(received, end));
    if (!this.#isRequested) return; // the first answer has these points, too
    const hasNew = this.#metrics.append(attempt, points, file === PRINTED);
    if (hasNew || offset > received) this.#reload.soon();
    this.#redraw.soon();
  }

  #fetchMissing() {
    this.#fetch(this.#picker.chosen.filter((name) => !this.#metrics.has(name))).catch(warn("the metrics"));
  }

  /** @param {string[]} names */
  async #fetch(names) {
    names.forEach((name) => this.#metrics.track(name));
    if (names.length) this.#metrics.load(await this.#read(names, MAX_POINTS));
    this.#redraw.now();
  }

  /** @param {string[]} names @param {number} limit points of each */
  async #read(names, limit) {
    return (await call("GET /jobs/{job_id}/metrics", { job_id: this.#jobId, name: names, max_points: limit })).items;
  }

  #draw() {
    if (!this.#metrics.names().length) return this.#showHint();
    this.#section.hidden = false;
    byId("no-metrics").hidden = true;
    const style = this.#picker.style;
    const charts = this.#picker.chosen.map((name) => ({ name, parts: this.#metrics.parts(name, this.#resumedFrom) }));
    const marks = restarts(this.#attempts, this.#axis.unit);
    const points = charts.flatMap(({ parts }) => pointsOf(parts));
    this.#axis.setPoints(points);
    const x = { ...this.#axis.content(), ...(this.#axis.unit.by === "step" && { title: countedBy(points) }) };
    this.#grid.draw(
      charts.map(({ name, parts }) => {
        const warning = missingValues(pointsOf(parts), style.logarithmic);
        const content = { series: curves(parts, style, this.#axis.unit), marks, x, y: { log: style.logarithmic } };
        return { name, latest: latestText(parts, this.#goals.get(name) ?? null), warning, content };
      }),
    );
  }

  /** Say how to get curves, once the script has printed none for a while. */
  #showHint() {
    const latest = this.#attempts.at(-1);
    const isLate = latest && (latest.ended_at !== null || (secondsSince(latest.started_at) ?? 0) > HINT_AFTER_SECONDS);
    this.#section.hidden = byId("no-metrics").hidden = !isLate || !this.#isRequested;
  }

  /** @param {MetricName} metric of which a value that was read from the output is marked, with a link to its line */
  #showLine({ name, printed }) {
    const link = this.#lineOf(name);
    link.hidden = printed === null;
    if (printed) link.href = linkTo(printed);
  }

  /** @param {string} name */
  #lineOf(name) {
    const link = this.#lines.get(name) ?? h("a", { class: "muted", hidden: true, "aria-label": `Show ${name} in the output` }, "from the output");
    this.#lines.set(name, link);
    return link;
  }

  /** @param {string} name @param {LineChart} chart */
  #tools(name, chart) {
    const button = (/** @type {string} */ format, /** @type {() => Promise<void>} */ save) =>
      h("button", { type: "button", class: "link", "aria-label": `Save ${name} as ${format}`, onclick: () => void save() }, format);
    return h("span", { class: "links" }, this.#lineOf(name), button("CSV", () => this.#saveCsv(name)), button("PNG", () => this.#savePng(name, chart)));
  }

  /** @param {string} name */
  async #saveCsv(name) {
    const all = new MetricStore();
    all.load(await this.#read([name], MAX_EXPORTED));
    saveAs(`${name}.csv`, new Blob([asCsv(all.parts(name, this.#resumedFrom))], { type: "text/csv" }));
  }

  /** @param {string} name @param {LineChart} chart */
  async #savePng(name, chart) {
    saveAs(`${name}.png`, await chart.toPng());
  }
}

/** @param {string} name characters that file systems reject become a dash @param {Blob} content */
function saveAs(name, content) {
  const url = URL.createObjectURL(content);
  h("a", { href: url, download: name.replaceAll(/[^\w.-]+/g, "-").slice(-120) }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** @param {Part[]} parts */
const pointsOf = (parts) => parts.flatMap(({ kept, replayed }) => [...kept, ...replayed]);

/** The last value and the best one. @param {Part[]} parts @param {MetricName["goal"]} goal */
function latestText(parts, goal) {
  const last = parts.at(-1)?.kept.at(-1);
  const best = bestPoint(parts.flatMap(({ kept }) => kept), goal);
  const text = (/** @type {Part["kept"][number]} */ point) => pointText(point, point[3], "time", countedBy(pointsOf(parts)));
  return [last && last[3] !== null && `last ${text(last)}`, best && `${goal} ${text(best)}`].filter(Boolean).join(" · ");
}

/**
 * Per attempt: the steps that count, the replayed ones dotted, and under a smoothed curve the values themselves.
 *
 * @param {Part[]} parts @param {ChartStyle} style @param {Unit} unit @returns {Series[]}
 */
function curves(parts, style, unit) {
  const curve = (/** @type {Part["kept"]} */ points, /** @type {string} */ name, /** @type {Partial<Series>} */ look, smoothing = 0) => ({
    name,
    x: positionsOf(points, unit),
    y: smoothing ? smoothed(valuesOf(points), smoothing) : valuesOf(points),
    describe: (/** @type {number} */ index) => pointText(points[index], points[index][3], unit.by, countedBy(points)),
    ...look,
  });
  const replayed = parts
    .filter((part) => part.replayed.length)
    .map((part) => curve([...part.kept.slice(-1), ...part.replayed], `attempt ${part.attempt}, replayed`, { colour: "--faint", width: 2, dash: true }));
  const raw = style.smoothing ? parts.map((part) => curve(part.kept, `attempt ${part.attempt}`, { colour: "--faint", width: 1 })) : [];
  const kept = parts.map((part) => curve(part.kept, `attempt ${part.attempt}${style.smoothing ? ", smoothed" : ""}`, {}, style.smoothing));
  return [...replayed, ...raw, ...kept];
}

/** @param {Part["kept"]} points @param {Unit} unit */
const positionsOf = (points, { by, ofStep }) => points.map(([step, , at]) => (by === "time" ? at : ofStep(step)));

/** Where each attempt but the latest ended, and why. @param {Attempt[]} attempts @param {Unit} unit @returns {Mark[]} */
function restarts(attempts, { by, ofStep }) {
  return attempts.slice(0, -1).flatMap(({ outcome, replayed_steps: replayed, ended_at: ended, last_step: last }) => {
    const x = by === "time" ? secondsOf(ended) : last === null ? null : ofStep(last);
    const kind = ["preempted", "cancelled", "success"].includes(outcome?.class) ? "attempt" : "failure";
    return x === null ? [] : [{ x, kind, label: [causeOf(outcome), replayed ? `−${counted(replayed, "step")}` : ""].filter(Boolean).join(", ") }];
  });
}

/** "SIGKILL rank 5". @param {Attempt["outcome"]} outcome */
function causeOf(outcome) {
  if (!outcome) return "ended";
  const { class: kind, rank, signal, exception, exit_code: code } = outcome;
  const cause = exception ?? signal ?? (kind === "user_error" && code ? `exit ${code}` : kind.replaceAll("_", " "));
  return typeof rank === "number" ? `${cause} rank ${rank}` : cause;
}
