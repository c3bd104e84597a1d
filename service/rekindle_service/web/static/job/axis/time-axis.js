/**
 * One axis for everything that happened to a job: attempts, snapshots, a lane for each rank, what was used; and the
 * metrics, over time or over steps. They share a cursor and a range, which are kept in the URL.
 *
 * @import { AttemptPublic as Attempt, JobPublic as Job, SnapshotPublic as Snapshot, Lanes } from "../../shared/api-types.d.ts"
 * @import { Epochs } from "../../charts/chart-data.js"
 * @import { Scale, Content } from "../../charts/chart-frame.js"
 * @import { Course, Span } from "./axis-model.js"
 * @import { Heat, MeasureName } from "./rank-measures.js"
 * @import { Axis, View } from "./view-state.js"
 * @typedef {{t: number | null, x: number | null, rank: number | null}} Hover where the user points at: in seconds since
 * 1970, in the unit of the metrics if it is at one of their charts, and the rank if it is at its lane
 */
import { AxisSurface, place } from "../../charts/axis-surface.js";
import { epochsOf, unitOf } from "../../charts/chart-data.js";
import { pixelOf, valueAt } from "../../charts/chart-frame.js";
import { ChartGrid } from "../../charts/chart-grid.js";
import { byId, copyText, setText } from "../../shared/dom.js";
import { count, significant } from "../../shared/format.js";
import { canResumeFrom, hasStopped } from "../../shared/job-actions.js";
import { onThemeChange } from "../../shared/theme.js";
import { Throttle } from "../../shared/timing.js";
import { drawAttempts, stretchesOfTime } from "./attempt-bar.js";
import { AxisData } from "./axis-data.js";
import { drawLegend, drawTicks, readingAt } from "./axis-legend.js";
import { coursesOf, positionOf, positionsWithin, stepAt, timeOf, timesWithin, wholeSpan } from "./axis-model.js";
import { drawDigests } from "./digest-lane.js";
import { RankLanes } from "./rank-lanes.js";
import { SnapshotMarks } from "./snapshot-marks.js";
import { getView, onView, setView } from "./view-state.js";

/** Pixels of the plot that are left and right of it. */
const LEFT = 64;
const RIGHT = 10;
/** Between two drawings of a job that runs. */
const REDRAW_INTERVAL_MS = 1000;
/** Until a range that is being chosen is fetched in detail. */
const SETTLE_MS = 250;
/** What a press of an arrow moves, as a share of the range. */
const STEP = 0.005;
const NOWHERE = { t: null, x: null, rank: null };

export class TimeAxis {
  #tracks = byId("axis-tracks");
  #slider = byId("axis-slider");
  #cursorLine = byId("axis-cursor");
  #replay = byId("axis-replay", HTMLButtonElement);
  #by = byId("chart-axis", HTMLSelectElement);
  #measure = byId("lane-measure", HTMLSelectElement);
  #usageOf = byId("usage-of", HTMLSelectElement);
  #ranks = new RankLanes();
  /** Loaded once a measure of the ranks is chosen. @type {typeof import("./rank-measures.js") | null} */
  #measures = null;
  #snapshots;
  #onReplay;
  /** The script uses rekindle.Run. */
  #usesRun = false;
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
  /** The axis of the metrics that was chosen. @type {Axis} */
  #chosenAxis = "step";
  /** @type {Hover} */
  #hover = NOWHERE;
  /** What the user has chosen in a chart: it stays there when the course of the steps is known better. @type {{by: Axis, x: number} | null} */
  #picked = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #settling;
  #redraw = new Throttle(() => this.#draw(), REDRAW_INTERVAL_MS);

  /**
   * @param {string} jobId @param {(step: number) => void} onResume @param {(step: number | null, reason?: string) => void} onReplay
   * @param {(moment: {time: number, attempt: number | null} | null) => void} onPoint the user points at it, or has left
   */
  constructor(jobId, onResume, onReplay, onPoint) {
    this.#onPoint = onPoint;
    this.#snapshots = new SnapshotMarks(jobId, onResume);
    this.#onReplay = onReplay;
    this.#replay.addEventListener("click", () => onReplay(this.#step()));
    this.#usage = new ChartGrid(byId("usage-charts"), () => null, {
      height: 110,
      onCursor: (t) => this.#point({ ...NOWHERE, t }),
      onRange: (range) => this.#choose(range),
      onPick: (t) => this.#pick(t, null),
    });
    this.#data = new AxisData(jobId, () => this.#points(), () => this.#requested(), () => this.#onData());
    new AxisSurface(this.#tracks, this.#slider, {
      scale: () => this.#scale(),
      cursor: () => this.#cursor() ?? this.#scale().max,
      next: (t, direction, isFar) => this.#next(t, direction * (isFar ? 10 : 1) * STEP),
      onCursor: (t, event) => this.#point({ ...NOWHERE, t, rank: event && this.#ranks.rankAt(event.clientY) }, event),
      onMove: (t) => this.#pick(t, null),
      onRange: (range) => this.#choose(range),
      onRank: (direction) => setView({ rank: this.#ranks.beside(getView().rank, direction) }),
      onPick: (t, event) => this.#pick(t, event && this.#ranks.rankAt(event.clientY)),
    });
    this.#by.addEventListener("input", () => this.#switchAxis(/** @type {Axis} */ (this.#by.value)));
    for (const control of [this.#measure, this.#usageOf]) control.addEventListener("input", () => void this.#loadMeasures());
    byId("axis-reset").addEventListener("click", () => this.#choose(null));
    byId("axis-link").addEventListener("click", () => void copyText(location.href, byId("axis-copied")));
    onView((view, before) => this.#onView(view, before));
    onThemeChange(() => {
      this.#ranks.forgetColours();
      this.#redraw.now();
    });
    new ResizeObserver(() => this.#redraw.now()).observe(this.#tracks);
  }

  /** For charts of metrics. @param {number} height in CSS pixels */
  chartOptions(height) {
    return {
      height,
      onCursor: (/** @type {number | null} */ x) => this.#point({ ...NOWHERE, t: timeOf(this.#courses, this.unit, x), x }),
      onRange: (/** @type {Span | null} */ range) => this.#choose(range && timesWithin(this.#courses, this.unit, range)),
      onPick: (/** @type {number} */ x) => this.#pick(timeOf(this.#courses, this.unit, x), null, x),
    };
  }

  /** What the axis of the metrics spans. @returns {Content["x"]} */
  content() {
    const { by } = this.unit;
    const [min, max] = this.#whole(this.unit);
    return by === "time" ? { kind: "time", min, max, idle: this.#data.idle } : { kind: by === "step" ? "whole" : "number", title: by, min, max };
  }

  /** In which the metrics are shown. */
  get unit() {
    return unitOf(this.#chosenAxis, this.#epochs);
  }

  /**
   * @param {ChartGrid} charts @param {() => void} redraw
   * @param {(attempt: number) => [at: number, step: number][]} reported when the metrics of an attempt reached which step
   */
  attach(charts, redraw, reported) {
    this.#charts = charts;
    this.#onCharts = redraw;
    this.#reported = reported;
    this.#chosenAxis = getView().by ?? /** @type {Axis} */ (this.#by.value);
    this.#offerEpochs();
  }

  /** The charts have these points, of which some may be new. @param {Parameters<typeof epochsOf>[1]} points */
  setPoints(points) {
    this.#findCourses(); // the charts are drawn now, before this axis is
    this.#findEpochs(points);
    this.#redraw.now();
  }

  #findCourses() {
    this.#courses = coursesOf(this.#attempts, this.#data.overview, this.#reported, this.#data.now);
  }

  /** @param {Parameters<typeof epochsOf>[1]} points */
  #findEpochs(points) {
    const before = this.unit.by;
    if (this.#job) this.#epochs = epochsOf(this.#job, points) ?? this.#epochs;
    this.#offerEpochs();
    if (this.unit.by !== before) this.#onCharts();
  }

  #offerEpochs() {
    this.#by.options[1].hidden = this.#epochs === null;
    this.#by.value = this.unit.by;
  }

  /** Make all charts show the range and the cursor. */
  #align() {
    const { from, to } = getView();
    const range = from !== null && to !== null ? /** @type {Span} */ ([from, to]) : null;
    this.#usage.setRange(range);
    this.#charts?.setRange(range && positionsWithin(this.#courses, this.unit, range));
    this.#moveCursor();
  }

  /** @param {Job} job */
  setJob(job) {
    const before = this.#job;
    this.#job = job;
    this.#data.isLive = job.ended_at === null;
    this.#data.attempt = job.attempt;
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

  /** @param {Snapshot[]} snapshots latest first @param {boolean} usesRun */
  setSnapshots(snapshots, usesRun) {
    this.#listed = snapshots;
    this.#usesRun = usesRun;
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

  /** Measures of the ranks that are shown. @returns {MeasureName[]} */
  #requested() {
    return this.#usageOf.value === "all" ? [this.#measure.value].filter((name) => name === "memory") : ["cpu", "memory", "gpu", "gpu_memory"];
  }

  async #loadMeasures() {
    this.#measures ??= /** @type {typeof import("./rank-measures.js")} */ (await import(new URL("./rank-measures.js", import.meta.url).href));
    await this.refresh();
  }

  /** The colours of the lanes, where a measure is chosen. @returns {Heat | null} */
  #heat() {
    const { lanes } = this.#data;
    return this.#measures && lanes && this.#measures.heatOf(this.#measure.value, lanes);
  }

  #onData() {
    const { time, lanes } = this.#data;
    if (time && lanes) drawLegend(time, lanes, this.#heat()?.legend() ?? null);
    this.#redraw.now();
    this.#onCharts();
  }

  /** @param {import("../../charts/chart-data.js").Unit} [unit] @returns {Span} */
  #whole(unit = unitOf("time", null)) {
    return this.#job ? wholeSpan(this.#job, this.#courses, unit, this.#data.now) : [0, 1];
  }

  /** @returns {Scale} */
  #scale() {
    const { from, to } = getView();
    const [min, max] = from !== null && to !== null ? [from, to] : this.#whole();
    return { min, max, from: LEFT, to: Math.max(LEFT + 1, this.#tracks.clientWidth - RIGHT), log: false, idle: this.#data.idle };
  }

  /** Seconds since 1970. */
  #cursor() {
    return this.#hover.t ?? getView().t;
  }

  /** On the axis of the metrics. */
  #chartCursor() {
    const picked = this.#hover.t === null && this.#picked?.by === this.unit.by ? this.#picked.x : null;
    return this.#hover.x ?? picked ?? positionOf(this.#courses, this.unit, this.#cursor());
  }

  /** @param {Hover} hover nowhere: the user has left it @param {PointerEvent | null} [event] over the lanes */
  #point(hover, event = null) {
    this.#hover = hover;
    this.#moveCursor();
    this.#ranks.showTip(hover.rank === null ? null : event, byId("axis-reading").textContent ?? "");
    this.#onPoint(hover.t === null ? null : { time: hover.t, attempt: this.#attemptAt(hover.t) });
  }

  /** Show the cursor at a time without keeping it there. @param {number | null} time seconds since 1970; null: at none */
  showTime(time) {
    this.#hover = { ...NOWHERE, t: time };
    this.#moveCursor();
  }

  /** @param {number} time @param {number} share of the range that is shown */
  #next(time, share) {
    const scale = this.#scale();
    return valueAt(scale, pixelOf(scale, time) + share * (scale.to - scale.from));
  }

  /** @param {number} time */
  #attemptAt(time) {
    return this.#courses.findLast(({ begin, end }) => begin <= time && time <= end)?.attempt ?? null;
  }

  /** Keep the cursor here, and show the log of the rank there. @param {number | null} t @param {number | null} rank @param {number | null} [x] on the axis of the metrics */
  #pick(t, rank, x = null) {
    this.#hover = NOWHERE;
    setView({ t, attempt: t === null ? null : this.#attemptAt(t), ...(rank === null ? {} : { rank }) });
    this.#picked = x === null ? null : { by: this.unit.by, x };
    this.#moveCursor();
  }

  /** @param {Span | null} range seconds since 1970 */
  #choose(range) {
    const [min, max] = this.#whole();
    const within = range && [Math.max(min, range[0]), Math.min(max, range[1])];
    const isWhole = !within || within[1] <= within[0] || (within[0] <= min && within[1] >= max);
    setView(isWhole ? { from: null, to: null } : { from: within[0], to: within[1] });
    this.#align();
  }

  /** @param {Axis} axis */
  #switchAxis(axis) {
    this.#hover = NOWHERE;
    this.#chosenAxis = axis;
    setView({ by: axis });
    this.#offerEpochs();
    this.#onCharts();
    this.#align();
  }

  /** @param {View} view @param {View} before */
  #onView({ t, from, to, by, rank }, before) {
    if (t !== before.t) this.#picked = null;
    if (by !== null && by !== this.#chosenAxis) this.#switchAxis(by);
    this.#moveCursor();
    const isMoved = from !== before.from || to !== before.to;
    if (isMoved || rank !== before.rank) this.#redraw.now();
    if (!isMoved) return;
    clearTimeout(this.#settling);
    this.#settling = setTimeout(() => void this.refresh(), SETTLE_MS);
  }

  #draw() {
    if (!this.#job || !this.#tracks.clientWidth) return;
    this.#findCourses();
    const { rank, from } = getView();
    const { time, lanes } = this.#data;
    const scale = this.#scale();
    byId("axis-reset").hidden = from === null;
    drawAttempts(time ? stretchesOfTime(time) : [], scale);
    this.#snapshots.draw(scale);
    this.#offerReplay();
    drawDigests(scale, this.#courses, this.#data.digests, this.#job, this.#attempts, this.#replay.disabled ? null : this.#onReplay);
    if (lanes) {
      this.#ranks.draw(lanes, scale, this.#tracks.clientWidth, rank, this.#heat());
      this.#drawUsage(lanes);
    }
    drawTicks(scale);
    this.#align();
  }

  /** @param {Lanes} lanes */
  #drawUsage(lanes) {
    const [min, max] = this.#whole();
    const isKnown = lanes.attempts.some(({ ranks }) => ranks.some(({ measures }) => measures.cpu)); // else it is being fetched
    const found = isKnown && this.#measures ? this.#measures.chartsOfRanks(lanes, getView().rank ?? 0) : chartsOfTotals(lanes);
    const charts = found.filter(({ series }) => series.some(({ y }) => y.some((value) => value !== null)));
    byId("usage").hidden = !charts.length;
    this.#usage.draw(charts.map(({ name, unit, latest, series }) => ({ name, latest, content: { series, x: { kind: "time", min, max, idle: this.#data.idle }, y: { unit, min: 0 } } })));
  }

  /** At which the cursor was left; null where there is none. */
  #step() {
    const step = stepAt(this.#courses, getView().t ?? NaN);
    return step === null ? null : Math.max(1, Math.floor(step + 1e-6));
  }

  #offerReplay() {
    const step = this.#step();
    this.#replay.hidden = !this.#usesRun;
    this.#replay.disabled = !this.#usesRun || !this.#job || !hasStopped(this.#job);
    setText(this.#replay, this.#replay.disabled ? "Replay: the job must stop first" : step === null ? "Replay" : `Replay from step ${count(step)}`);
  }

  #moveCursor() {
    this.#offerReplay();
    const scale = this.#scale();
    const cursor = this.#cursor();
    place(this.#cursorLine, scale, cursor);
    this.#cursorLine.dataset.kept = String(this.#hover.t === null);
    this.#usage.setCursor(cursor);
    this.#charts?.setCursor(this.#chartCursor());
    const text = cursor === null ? "" : readingAt(cursor, this.#courses, this.#data.lanes, this.#hover.rank ?? getView().rank, this.#heat());
    setText(byId("axis-reading"), text);
    this.#ranks.updateTip(text);
    const values = { valuemin: scale.min, valuemax: scale.max, valuenow: cursor ?? scale.min, valuetext: text || "No position chosen" };
    for (const [name, value] of Object.entries(values)) this.#slider.setAttribute(`aria-${name}`, String(value));
  }
}

// --- What all ranks of a job used together, over time: processor, memory, GPUs.

const GIGABYTE = 1e9;
const CORE = 100; // percent

/** Name, unit and values of each chart. @type {[string, string, (totals: Lanes["attempts"][number]["totals"]) => (number | null)[]][]} */
const CHARTS = [
  ["CPU", "cores", ({ cpu_percent: values }) => values.map((percent) => percent && Math.round(percent) / CORE)],
  ["Memory", "GB", ({ rss_bytes: values }) => values.map((bytes) => (bytes ? bytes / GIGABYTE : null))],
  ["GPU utilization", "%", ({ gpu_percent: values }) => values],
  ["GPU memory", "GB", ({ gpu_memory_bytes: values }) => values.map((bytes) => bytes && bytes / GIGABYTE)],
];

/** @param {Lanes} lanes */
function chartsOfTotals({ attempts }) {
  return CHARTS.map(([name, unit, valuesOf]) => {
    const series = attempts.map(({ attempt, at, totals }) => ({ name: `attempt ${attempt}`, x: at, y: valuesOf(totals) }));
    const last = series.flatMap(({ y }) => y).findLast((value) => value !== null);
    return { name, unit, latest: last === undefined || last === null ? "" : `${significant(last)} ${unit}`, series };
  });
}
