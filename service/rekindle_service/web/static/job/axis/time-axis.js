/**
 * One axis for everything that happened to a job: attempts, snapshots, a lane for each rank, metrics, what was used.
 * They share a cursor and a range, which are kept in the URL.
 *
 * @import { AttemptPublic as Attempt, JobPublic as Job, Lanes, SnapshotPublic as Snapshot, TimeBreakdown } from "../../shared/api-types.d.ts"
 * @import { Scale } from "../../charts/chart-frame.js"
 * @import { Course, Span } from "./axis-model.js"
 */
import { ChartGrid } from "../../charts/chart-grid.js";
import { axisTicks } from "../../charts/ticks.js";
import { call, warn } from "../../shared/api.js";
import { copyText } from "../../shared/clipboard.js";
import { byId, h, patchChildren, setText } from "../../shared/dom.js";
import { canResumeFrom } from "../../shared/job-actions.js";
import { latestWins } from "../../shared/latest-wins.js";
import { onThemeChange } from "../../shared/theme.js";
import { everySecond } from "../../shared/ticker.js";
import { CATEGORIES, amountText, drawAttempts, stretchesOfSteps, stretchesOfTime } from "./attempt-bar.js";
import { coursesOf, positionOf, secondsOf, timeOf, wholeSpan } from "./axis-model.js";
import { AxisSurface, place } from "./axis-surface.js";
import { RankLanes, colourOfPhase } from "./rank-lanes.js";
import { readingAt } from "./reading.js";
import { SnapshotMarks } from "./snapshot-marks.js";
import { axisContent, drawUsage } from "./usage-charts.js";
import { getView, onView, setView } from "./view-state.js";

/** Pixels of the plot that are left and right of it; the charts have the same. */
const LEFT = 64;
const RIGHT = 10;
/** For a job that has not ended; the keeper takes a sample as often. */
const REFRESH_SECONDS = 5;
const PIXELS_PER_TICK = 90;
/** Until a range that is being chosen is fetched in detail. */
const SETTLE_MS = 250;

export class TimeAxis {
  #jobId;
  #tracks = byId("axis-tracks");
  #slider = byId("axis-slider");
  #cursorLine = byId("axis-cursor");
  #by = byId("chart-axis", HTMLSelectElement);
  #ranks = new RankLanes();
  #snapshots;
  #usage;
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
  /** @type {TimeBreakdown | null} */
  #time = null;
  /** Of the range that is shown. @type {Lanes | null} */
  #lanes = null;
  /** Of all the time, as it was last fetched. @type {Lanes | null} */
  #overview = null;
  /** @type {Course[]} */
  #courses = [];
  /** Seconds by which the server's clock is ahead of the browser's. */
  #ahead = 0;
  /** Where the user points at, in the unit of the axis. @type {number | null} */
  #hover = null;
  #age = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #settling;
  #isScheduled = false;
  #fetch;

  /** @param {string} jobId @param {(step: number) => void} onResume */
  constructor(jobId, onResume) {
    this.#jobId = jobId;
    this.#snapshots = new SnapshotMarks(jobId, onResume);
    this.#usage = new ChartGrid(byId("usage-charts"), () => null, this.chartOptions(90));
    this.#fetch = latestWins(() => this.#read(), (answer) => this.#show(answer));
    new AxisSurface(this.#tracks, this.#slider, {
      scale: () => this.#scale(),
      cursor: () => this.#cursor(),
      onCursor: (x) => this.#point(x),
      onRange: (range) => this.#choose(range),
      onPick: (x, event) => this.#pick(x, event && this.#ranks.rankAt(event.clientY)),
    });
    this.#by.value = getView().by;
    this.#by.addEventListener("input", () => this.#switchAxis());
    byId("axis-reset").addEventListener("click", () => this.#choose(null));
    byId("axis-link").addEventListener("click", () => void copyText(location.href, byId("axis-copied")));
    onView((view, before) => this.#onView(view.from !== before.from || view.to !== before.to || view.by !== before.by));
    onThemeChange(() => {
      this.#ranks.forgetColours();
      this.#schedule();
    });
    new ResizeObserver(() => this.#schedule()).observe(this.#tracks);
    everySecond(() => this.#tick());
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
    return { ...axisContent(getView().by), min, max };
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

  /** Charts have new points. */
  extend() {
    this.#schedule();
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
    this.#snapshots.show(this.#listed, canResumeFrom(job));
    if (before?.state !== job.state || before.attempt !== job.attempt || before.ended_at !== job.ended_at) void this.refresh();
    this.#schedule();
  }

  /** @param {Attempt[]} attempts ascending */
  setAttempts(attempts) {
    this.#attempts = attempts;
    this.#schedule();
  }

  /** @param {Snapshot[]} snapshots latest first */
  setSnapshots(snapshots) {
    this.#listed = snapshots;
    if (this.#job) this.#snapshots.show(snapshots, canResumeFrom(this.#job));
    this.#schedule();
  }

  /** Fetch what the lanes and the row of the attempts show; an unreachable server leaves them as they are. */
  async refresh() {
    this.#age = 0;
    await this.#fetch().catch(warn("the time axis"));
  }

  /** @returns {Promise<[TimeBreakdown, Lanes]>} */
  async #read() {
    const { by, from, to } = getView();
    const range = by === "time" && from !== null && to !== null ? { from, to } : {};
    return Promise.all([call("GET /jobs/{job_id}/time", { job_id: this.#jobId }), call("GET /jobs/{job_id}/lanes", { job_id: this.#jobId, ...range, points: this.#points() })]);
  }

  /** As many as there are pixels to tell apart. */
  #points() {
    return Math.max(50, Math.min(600, Math.round((this.#tracks.clientWidth - LEFT) / 3)));
  }

  /** @param {[TimeBreakdown, Lanes]} answer */
  #show([time, lanes]) {
    this.#time = time;
    this.#lanes = lanes;
    if (getView().from === null || !this.#overview) this.#overview = lanes;
    const end = Math.max(0, ...time.intervals.slice(-1).map(({ started_at: started, seconds }) => (secondsOf(started) ?? 0) + seconds));
    if (this.#job?.ended_at === null && end) this.#ahead = end - Date.now() / 1000;
    this.#drawLegend(time, lanes);
    this.#schedule();
    this.#onCharts();
  }

  #tick() {
    this.#age += 1;
    if (this.#job?.ended_at === null && this.#age >= REFRESH_SECONDS) void this.refresh();
  }

  #now() {
    return Date.now() / 1000 + this.#ahead;
  }

  /** @returns {Span} */
  #whole() {
    return this.#job ? wholeSpan(this.#job, this.#courses, getView().by, this.#now()) : [0, 1];
  }

  /** @returns {Scale} */
  #scale() {
    const { from, to } = getView();
    const [min, max] = from !== null && to !== null ? [from, to] : this.#whole();
    return { min, max, from: LEFT, to: Math.max(LEFT + 1, this.#tracks.clientWidth - RIGHT), log: false };
  }

  /** In the unit of the axis. */
  #cursor() {
    return this.#hover ?? positionOf(this.#courses, getView().by, getView().t);
  }

  /** @param {number | null} x in the unit of the axis; null: where the user has left it */
  #point(x) {
    this.#hover = x;
    this.#moveCursor();
  }

  /** Keep the cursor here, and show the log of the rank there. @param {number} x @param {number | null} rank */
  #pick(x, rank) {
    this.#hover = null;
    const t = timeOf(this.#courses, getView().by, x);
    const attempt = this.#courses.findLast(({ begin, end }) => t !== null && begin <= t && t <= end)?.attempt ?? null;
    setView({ t, attempt, ...(rank === null ? {} : { rank }) });
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
    setView({ by: this.#by.value === "step" ? "step" : "time", from: null, to: null });
  }

  /** @param {boolean} isMoved another range or axis */
  #onView(isMoved) {
    this.#by.value = getView().by;
    this.#schedule();
    if (!isMoved) return;
    this.#onCharts();
    clearTimeout(this.#settling);
    this.#settling = setTimeout(() => void this.refresh(), SETTLE_MS);
  }

  /** Once a frame. */
  #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    requestAnimationFrame(() => {
      this.#isScheduled = false;
      this.#draw();
    });
  }

  #draw() {
    if (!this.#job || !this.#tracks.clientWidth) return;
    this.#courses = coursesOf(this.#attempts, this.#overview, this.#reported, this.#now());
    const { by, rank, from } = getView();
    const scale = this.#scale();
    byId("axis-reset").hidden = from === null;
    drawAttempts(by === "step" ? stretchesOfSteps(this.#courses, this.#attempts) : this.#time ? stretchesOfTime(this.#time) : [], scale);
    this.#snapshots.draw(by, scale);
    if (this.#lanes) {
      this.#ranks.draw(this.#lanes, by, scale, this.#tracks.clientWidth, rank);
      drawUsage(this.#usage, this.#lanes, by, this.#whole());
    }
    this.#drawTicks(scale);
    this.#align();
  }

  /** @param {Scale} scale */
  #drawTicks(scale) {
    const kind = getView().by === "time" ? "time" : "number";
    const ticks = axisTicks(kind, scale.min, scale.max, Math.max(2, Math.floor((scale.to - scale.from) / PIXELS_PER_TICK)));
    const nodes = ticks.map(({ at, label }) => {
      const node = h("span", {}, label);
      place(node, scale, at);
      return node;
    });
    patchChildren(byId("axis-ticks"), nodes);
  }

  #moveCursor() {
    const scale = this.#scale();
    const cursor = this.#cursor();
    place(this.#cursorLine, scale, cursor);
    this.#cursorLine.dataset.kept = String(this.#hover === null);
    for (const grid of [this.#charts, this.#usage]) grid?.setCursor(cursor);
    const text = cursor === null ? "" : readingAt(timeOf(this.#courses, getView().by, cursor), cursor, getView(), this.#courses, this.#lanes);
    setText(byId("axis-reading"), text);
    const values = { valuemin: scale.min, valuemax: scale.max, valuenow: cursor ?? scale.min, valuetext: text || "No position chosen" };
    for (const [name, value] of Object.entries(values)) this.#slider.setAttribute(`aria-${name}`, String(value));
  }

  /** @param {TimeBreakdown} time @param {Lanes} lanes */
  #drawLegend({ seconds }, lanes) {
    const kinds = /** @type {(keyof typeof CATEGORIES)[]} */ (Object.keys(CATEGORIES)).filter((kind) => seconds[kind] > 0);
    const nodes = kinds.map((kind) => h("li", { "data-kind": kind }, `${CATEGORIES[kind]} ${amountText(seconds[kind])}`));
    const phases = lanes.phases.map((phase, index) => phaseNode(phase, colourOfPhase(lanes.phases, index)));
    const waits = lanes.attempts.some(({ ranks }) => ranks.some(({ waiting }) => waiting.some(Boolean)));
    const ranks = phases.length ? [h("li", { class: "plain" }, "Ranks:"), ...phases, ...(waits ? [h("li", { "data-kind": "waits" }, "waits for others")] : [])] : [];
    patchChildren(byId("timeline-legend"), [...nodes, ...ranks]);
  }
}

/** @param {string} phase @param {string} colour */
function phaseNode(phase, colour) {
  const node = h("li", {}, h("bdi", {}, phase));
  node.style.setProperty("--tone", colour.startsWith("--") ? `var(${colour})` : colour);
  return node;
}
