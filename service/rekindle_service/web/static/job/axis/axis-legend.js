/**
 * The ticks of the axis, its legend, which are the phases of the ranks, and the strip of how much time went into what.
 *
 * @import { Scale } from "../../charts/chart-frame.js"
 * @import { Course } from "./axis-model.js"
 * @import { Heat } from "./rank-measures.js"
 * @import { AttemptLanes, Lanes, RankLane, TimeBreakdown } from "../../shared/api-types.d.ts"
 */
import { place } from "../../charts/axis-surface.js";
import { pixelOf } from "../../charts/chart-frame.js";
import { axisTicks } from "../../charts/ticks.js";
import { byId, h, patchChildren, reorderChildren, setText } from "../../shared/dom.js";
import { count, percent } from "../../shared/format.js";
import { amountText, CATEGORIES } from "./attempt-bar.js";
import { stepAt } from "./axis-model.js";
import { colourOfPhase } from "./rank-lanes.js";

const PIXELS_PER_TICK = 90;

/** @param {Scale} scale in seconds since the epoch */
export function drawTicks(scale) {
  let free = -Infinity;
  const nodes = axisTicks("time", scale.min, scale.max, Math.floor((scale.to - scale.from) / PIXELS_PER_TICK), scale.idle).flatMap(({ at, label }) => {
    const left = pixelOf(scale, at);
    if (left < free || left > scale.to - PIXELS_PER_TICK / 10) return [];
    free = left + PIXELS_PER_TICK / 2;
    const node = h("span", {}, label);
    place(node, scale, at);
    return [node];
  });
  patchChildren(byId("axis-ticks"), nodes);
}

/** What each part of the time is. @type {typeof CATEGORIES} */
const MEANINGS = {
  training: "steps that count",
  saving: "the training waited for a snapshot",
  replayed: "steps that were lost, so that a later attempt repeated them",
  stalled: "no progress, until a hang was found or it continued",
  starting: "the job had its slots, and not every rank ran yet",
  waiting: "pauses between two attempts",
  queued: "the job waited for slots, was on hold, or had ended until it was resumed",
};
const strip = byId("time-strip");
for (const event of ["pointerover", "focusin"]) strip.addEventListener(event, ({ target }) => {
  const part = target instanceof Element ? target.closest("[data-kind]") : null;
  const kind = part instanceof HTMLElement ? /** @type {keyof typeof CATEGORIES} */ (part.dataset.kind) : null;
  setText(byId("time-meaning"), kind ? `${CATEGORIES[kind]}: ${MEANINGS[kind]}` : "");
});

/** Where the time of the job went: a bar, and the same as a table, which explains its colours. @param {TimeBreakdown} time */
function drawStrip({ seconds, goodput }) {
  const kinds = /** @type {(keyof typeof CATEGORIES)[]} */ (Object.keys(CATEGORIES)).filter((kind) => seconds[kind] > 0);
  const total = kinds.reduce((sum, kind) => sum + seconds[kind], 0);
  strip.hidden = total === 0;
  setText(byId("time-goodput"), goodput !== null ? `goodput ${percent(goodput)}` : seconds.training > 0 ? "goodput not known" : "");
  const cell = (/** @type {string} */ text) => h("td", { role: "cell" }, text);
  const row = (/** @type {keyof typeof CATEGORIES} */ kind) => [h("th", { role: "rowheader", scope: "row", tabindex: 0, "data-focus": kind }, CATEGORIES[kind]), cell(amountText(seconds[kind])), cell(percent(seconds[kind] / total))];
  patchChildren(byId("time-parts"), kinds.map((kind) => h("tr", { role: "row", "data-kind": kind }, ...row(kind))));
  reorderChildren(byId("time-bar"), kinds.map((kind, index) => {
    const node = /** @type {HTMLElement} */ (byId("time-bar").children[index] ?? h("span"));
    node.dataset.kind = kind;
    node.style.flexGrow = String(seconds[kind] / total);
    return node;
  }));
}

/** @param {TimeBreakdown} time @param {Lanes} lanes @param {HTMLElement | null} scale of the colours of a measure, instead of the phases */
export function drawLegend(time, lanes, scale) {
  drawStrip(time);
  const phases = lanes.phases.map((phase, index) => phaseNode(phase, colourOfPhase(lanes.phases, index)));
  const waits = lanes.attempts.some(({ ranks }) => ranks.some(({ waiting }) => waiting.some(Boolean)));
  const ranks = scale ? [scale] : [...phases, ...(waits ? [h("li", { "data-kind": "waits" }, "waits for others")] : [])];
  patchChildren(byId("timeline-legend"), phases.length ? [h("li", { class: "plain" }, "Ranks:"), ...ranks] : []);
}

/** @param {string} phase @param {string} colour */
function phaseNode(phase, colour) {
  const node = h("li", {}, h("bdi", {}, phase));
  node.style.setProperty("--tone", colour.startsWith("--") ? `var(${colour})` : colour);
  return node;
}

// --- reading: The axis at its cursor, in words: "14:05:07, attempt 2, step 120, rank 1: train, waits 40 %, device 87
// %". Pure.

/** @param {number} time seconds since 1970 @param {Course[]} courses @param {Lanes | null} lanes @param {number | null} rank null: all of them @param {Heat | null} heat */
export function readingAt(time, courses, lanes, rank, heat) {
  const attempt = courses.findLast(({ begin, end }) => begin <= time && time <= end)?.attempt ?? null;
  const step = stepAt(courses, time);
  const parts = [clockText(time), attempt === null ? "between attempts" : `attempt ${attempt}`, ...(step ? [`step ${count(Math.floor(step))}`] : [])];
  const found = lanes?.attempts.find((each) => each.attempt === attempt);
  return [...parts, ...(found ? rankTexts(found, lanes?.phases ?? [], rank, time, heat) : [])].join(" · ");
}

/** In the browser's zone, which is named. @param {number} time seconds since the epoch */
const clockText = (time) => new Date(time * 1000).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short" });

/** Of the chosen rank; of all where none is. @param {AttemptLanes} attempt @param {string[]} phases @param {number | null} rank @param {number} time @param {Heat | null} heat */
function rankTexts({ at, ranks }, phases, rank, time, heat) {
  const index = at.findIndex((each) => each >= time);
  const point = index < 0 ? at.length - 1 : index;
  if (point < 0) return [];
  const chosen = ranks.find((lane) => lane.rank === rank);
  if (chosen) return [`rank ${chosen.rank}: ${(chosen.phase[point] !== null && heat?.text(chosen, point)) || laneText(chosen, phases, point)}`];
  const waiting = ranks.filter((lane) => (lane.waiting[point] ?? 0) >= 0.5).length;
  return waiting ? [`${waiting} of ${ranks.length} ranks wait for others`] : [];
}

/** @param {RankLane} lane @param {string[]} phases @param {number} point */
function laneText({ exit, phase, waiting, use }, phases, point) {
  const [now, wait, busy] = [phase[point], waiting[point], use[point]];
  if (now === null) return exit ?? "did not run";
  const facts = [phases[now], wait !== null && `waits ${Math.round(100 * wait)} %`, busy !== null && `device ${Math.round(busy)} %`, exit !== null && point === phase.length - 1 && exit];
  return facts.filter(Boolean).join(", ");
}
