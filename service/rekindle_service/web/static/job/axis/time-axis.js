/**
 * One axis for everything that happened to a job: attempts, snapshots, a lane for each rank, metrics, what was used.
 * They share a cursor and a range, which are kept in the URL.
 *
 * @import { AttemptPublic as Attempt, JobPublic as Job, SnapshotPublic as Snapshot, AttemptLanes, Lanes } from "../../shared/api-types.d.ts"
 * @import { Scale, Content } from "../../charts/chart-frame.js"
 * @import { Course, Epochs, Span, Unit } from "./axis-model.js"
 * @import { Axis, View } from "./view-state.js"
 */
import { ChartGrid } from "../../charts/chart-grid.js";
import { byId, copyText, setText } from "../../shared/dom.js";
import { significant } from "../../shared/format.js";
import { canResumeFrom } from "../../shared/job-actions.js";
import { onThemeChange } from "../../shared/theme.js";
import { Throttle } from "../../shared/timing.js";
import { drawAttempts, stretchesOfSteps, stretchesOfTime } from "./attempt-bar.js";
import { AxisData } from "./axis-data.js";
import { drawLegend, drawTicks, readingAt } from "./axis-legend.js";
import { coursesOf, epochsOf, positionOf, timeOf, unitOf, wholeSpan } from "./axis-model.js";
import { AxisSurface, place } from "./axis-surface.js";
import { RankLanes } from "./rank-lanes.js";
import { SnapshotMarks } from "./snapshot-marks.js";
import { axisNamed, getView, onView, setView } from "./view-state.js";

/** Pixels of the plot that are left and right of it; the charts have the same. */
const LEFT = 64;
const RIGHT = 10;
/** Between two drawings of a job that runs. */
const REDRAW_INTERVAL_MS = 1000;
/** Until a range that is being chosen is fetched in detail. */
const SETTLE_MS = 250;

export class TimeAxis {
  #tracks = byId("axis-tracks");
  #slider = byId("axis-slider");
  #cursorLine = byId("axis-cursor");
  #by = byId("chart-axis", HTMLSelectElement);
  #ranks = new RankLanes();
  #snapshots;
  #usage;
  #data;
  #onPoint;
  /** Charts that others draw. @type {ChartGrid | null} */
  #charts = null;
  #onCharts = () => {};
  /** @type {(attempt: number) => [at: number, step: number][]} */
  #reported = () => [];
  /** @type {Job | null} */
  #job = null;
  /** @type {Attempt[]} */
  #attempts = [];
  /** @type {Snapshot[]} */
  #listed = [];
  /** @type {Course[]} */
  #courses = [];
  /** Null where the job reports none. @type {Epochs | null} */
  #epochs = null;
  /** Where the user points at, in the unit of the axis. @type {number | null} */
  #hover = null;
  /** What the user has chosen: it stays there when the course of the steps is known better. @type {{by: Axis, x: number} | null} */
  #picked = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #settling;
  #redraw = new Throttle(() => this.#draw(), REDRAW_INTERVAL_MS);

  /**
   * @param {string} jobId @param {(step: number) => void} onResume
   * @param {(moment: {time: number, attempt: number | null} | null) => void} onPoint the user points at it, or has left
   */
  constructor(jobId, onResume, onPoint) {
    this.#onPoint = onPoint;
    this.#snapshots = new SnapshotMarks(jobId, onResume);
    this.#usage = new ChartGrid(byId("usage-charts"), () => null, this.chartOptions(90));
    this.#data = new AxisData(jobId, () => this.#points(), () => this.#onData());
    new AxisSurface(this.#tracks, this.#slider, {
      scale: () => this.#scale(),
      cursor: () => this.#cursor(),
      onCursor: (x) => this.#point(x),
      onRange: (range) => this.#choose(range),
      onPick: (x, event) => this.#pick(x, event && this.#ranks.rankAt(event.clientY)),
    });
    this.#offerEpochs();
    this.#by.addEventListener("input", () => this.#switchAxis());
    byId("axis-reset").addEventListener("click", () => this.#choose(null));
    byId("axis-link").addEventListener("click", () => void copyText(location.href, byId("axis-copied")));
    onView((view, before) => this.#onView(view, before));
    onThemeChange(() => {
      this.#ranks.forgetColours();
      this.#redraw.now();
    });
    new ResizeObserver(() => this.#redraw.now()).observe(this.#tracks);
  }

  /** For charts that are drawn on this axis. @param {number} height in CSS pixels */
  chartOptions(height) {
    return {
      height,
      left: LEFT,
      onCursor: (/** @type {number | null} */ x) => this.#point(x),
      onRange: (/** @type {Span | null} */ range) => this.#choose(range),
      onPick: (/** @type {number} */ x) => this.#pick(x, null),
    };
  }

  /** What the axis of a chart spans. */
  content() {
    const [min, max] = this.#whole();
    return { ...axisContent(this.unit.by), min, max };
  }

  /** In which everything is shown. */
  get unit() {
    return unitOf(getView().by, this.#epochs);
  }

  /**
   * @param {ChartGrid} charts @param {() => void} redraw
   * @param {(attempt: number) => [at: number, step: number][]} reported when the metrics of an attempt reached which step
   */
  attach(charts, redraw, reported) {
    this.#charts = charts;
    this.#onCharts = redraw;
    this.#reported = reported;
  }

  /** The charts have these points, of which some may be new. @param {Parameters<typeof epochsOf>[1]} points */
  setPoints(points) {
    this.#findEpochs(points);
    this.#redraw.now();
  }

  /** @param {Parameters<typeof epochsOf>[1]} points */
  #findEpochs(points) {
    const before = this.unit.by;
    if (this.#job) this.#epochs = epochsOf(this.#job, points) ?? this.#epochs;
    this.#offerEpochs();
    if (this.unit.by !== before) this.#onCharts();
  }

  #offerEpochs() {
    this.#by.options[2].hidden = this.#epochs === null;
    this.#by.value = this.unit.by;
  }

  /** Make all charts show the range and the cursor. */
  #align() {
    const { min, max } = this.#scale();
    for (const grid of [this.#charts, this.#usage]) grid?.setRange([min, max]);
    this.#moveCursor();
  }

  /** @param {Job} job */
  setJob(job) {
    const before = this.#job;
    this.#job = job;
    this.#data.isLive = job.ended_at === null;
    this.#findEpochs([]);
    this.#snapshots.show(this.#listed, canResumeFrom(job));
    if (!before) return this.#redraw.now();
    if (before.state !== job.state || before.attempt !== job.attempt || before.ended_at !== job.ended_at) void this.refresh();
    this.#redraw.soon();
  }

  /** @param {Attempt[]} attempts ascending */
  setAttempts(attempts) {
    this.#attempts = attempts;
    this.#redraw.now();
  }

  /** @param {Snapshot[]} snapshots latest first */
  setSnapshots(snapshots) {
    this.#listed = snapshots;
    if (this.#job) this.#snapshots.show(snapshots, canResumeFrom(this.#job));
    this.#redraw.now();
  }

  refresh() {
    return this.#data.refresh();
  }

  /** How many points of the lanes are requested: one for each three pixels. */
  #points() {
    return Math.max(50, Math.min(600, Math.round((this.#tracks.clientWidth - LEFT) / 3)));
  }

  #onData() {
    const { time, lanes } = this.#data;
    if (time && lanes) drawLegend(time, lanes);
    this.#redraw.now();
    this.#onCharts();
  }

  /** @returns {Span} */
  #whole() {
    return this.#job ? wholeSpan(this.#job, this.#courses, this.unit, this.#data.now) : [0, 1];
  }

  /** @returns {Scale} */
  #scale() {
    const { from, to } = getView();
    const [min, max] = from !== null && to !== null ? [from, to] : this.#whole();
    return { min, max, from: LEFT, to: Math.max(LEFT + 1, this.#tracks.clientWidth - RIGHT), log: false };
  }

  /** In the unit of the axis. */
  #cursor() {
    const picked = this.#picked?.by === this.unit.by ? this.#picked.x : null;
    return this.#hover ?? picked ?? positionOf(this.#courses, this.unit, getView().t);
  }

  /** @param {number | null} x in the unit of the axis; null: where the user has left it */
  #point(x) {
    this.#hover = x;
    this.#moveCursor();
    const time = timeOf(this.#courses, this.unit, x);
    this.#onPoint(time === null ? null : { time, attempt: this.#attemptAt(time) });
  }

  /** Show the cursor at a time without keeping it there. @param {number | null} time seconds since 1970; null: at none */
  showTime(time) {
    this.#hover = positionOf(this.#courses, this.unit, time);
    this.#moveCursor();
  }

  /** @param {number} time */
  #attemptAt(time) {
    return this.#courses.findLast(({ begin, end }) => begin <= time && time <= end)?.attempt ?? null;
  }

  /** Keep the cursor here, and show the log of the rank there. @param {number} x @param {number | null} rank */
  #pick(x, rank) {
    this.#hover = null;
    const t = timeOf(this.#courses, this.unit, x);
    setView({ t, attempt: t === null ? null : this.#attemptAt(t), ...(rank === null ? {} : { rank }) });
    this.#picked = { by: this.unit.by, x };
    this.#moveCursor();
  }

  /** @param {Span | null} range in the unit of the axis */
  #choose(range) {
    const [min, max] = this.#whole();
    const within = range && [Math.max(min, range[0]), Math.min(max, range[1])];
    const isWhole = !within || within[1] <= within[0] || (within[0] <= min && within[1] >= max);
    setView(isWhole ? { from: null, to: null } : { from: within[0], to: within[1] });
    this.#align();
  }

  #switchAxis() {
    this.#hover = null;
    setView({ by: axisNamed(this.#by.value), from: null, to: null });
  }

  /** @param {View} view @param {View} before */
  #onView({ t, from, to, by, rank }, before) {
    if (t !== before.t) this.#picked = null;
    this.#moveCursor();
    const isMoved = from !== before.from || to !== before.to || by !== before.by;
    if (isMoved || rank !== before.rank) this.#redraw.now();
    if (!isMoved) return;
    this.#offerEpochs();
    this.#onCharts();
    clearTimeout(this.#settling);
    this.#settling = setTimeout(() => void this.refresh(), SETTLE_MS);
  }

  #draw() {
    if (!this.#job || !this.#tracks.clientWidth) return;
    this.#courses = coursesOf(this.#attempts, this.#data.overview, this.#reported, this.#data.now);
    const { rank, from } = getView();
    const { unit } = this;
    const { time, lanes } = this.#data;
    const scale = this.#scale();
    byId("axis-reset").hidden = from === null;
    drawAttempts(unit.by !== "time" ? stretchesOfSteps(this.#courses, this.#attempts, unit) : time ? stretchesOfTime(time) : [], scale);
    this.#snapshots.draw(unit, scale);
    if (lanes) {
      this.#ranks.draw(lanes, unit, scale, this.#tracks.clientWidth, rank);
      drawUsage(this.#usage, lanes, unit, this.#whole());
    }
    drawTicks(unit.by, scale);
    this.#align();
  }

  #moveCursor() {
    const scale = this.#scale();
    const cursor = this.#cursor();
    place(this.#cursorLine, scale, cursor);
    this.#cursorLine.dataset.kept = String(this.#hover === null);
    for (const grid of [this.#charts, this.#usage]) grid?.setCursor(cursor);
    const text = cursor === null ? "" : readingAt(timeOf(this.#courses, this.unit, cursor), cursor, this.unit, getView(), this.#courses, this.#data.lanes);
    setText(byId("axis-reading"), text);
    const values = { valuemin: scale.min, valuemax: scale.max, valuenow: cursor ?? scale.min, valuetext: text || "No position chosen" };
    for (const [name, value] of Object.entries(values)) this.#slider.setAttribute(`aria-${name}`, String(value));
  }
}

// --- What all ranks of a job used together, over time: processor, memory, GPUs.

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
function drawUsage(grid, lanes, unit, whole) {
  const charts = CHARTS.flatMap(([name, symbol, valuesOf]) => {
    const series = lanes.attempts.map((attempt) => ({ name: `attempt ${attempt.attempt}`, x: positionsOf(attempt, unit), y: valuesOf(attempt) }));
    const values = series.flatMap(({ y }) => y).filter((value) => value !== null);
    return values.length ? [{ name, latest: `${significant(values[values.length - 1])} ${symbol}`, content: usageContent(series, symbol, unit.by, whole) }] : [];
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
function usageContent(series, symbol, by, [min, max]) {
  return { series, x: { ...axisContent(by), min, max }, y: { unit: symbol, min: 0 } };
}

/** The axis of a chart. @param {Axis} by @returns {Content["x"]} */
const axisContent = (by) => (by === "time" ? { kind: "time" } : { kind: "number", title: by });
