/**
 * The ticks of the axis, and its legend: how much time went into what, and the phases of the ranks.
 *
 * @import { Lanes, TimeBreakdown } from "../../shared/api-types.d.ts"
 * @import { Scale } from "../../charts/chart-frame.js"
 * @import { Axis } from "./view-state.js"
 */
import { axisTicks } from "../../charts/ticks.js";
import { byId, h, patchChildren } from "../../shared/dom.js";
import { CATEGORIES, amountText } from "./attempt-bar.js";
import { place } from "./axis-surface.js";
import { colourOfPhase } from "./rank-lanes.js";

const PIXELS_PER_TICK = 90;

/** @param {Axis} by @param {Scale} scale */
export function drawTicks(by, scale) {
  const ticks = axisTicks(by === "time" ? "time" : "number", scale.min, scale.max, Math.max(2, Math.floor((scale.to - scale.from) / PIXELS_PER_TICK)));
  const nodes = ticks.map(({ at, label }) => {
    const node = h("span", {}, label);
    place(node, scale, at);
    return node;
  });
  patchChildren(byId("axis-ticks"), nodes);
}

/** @param {TimeBreakdown} time @param {Lanes} lanes */
export function drawLegend({ seconds }, lanes) {
  const kinds = /** @type {(keyof typeof CATEGORIES)[]} */ (Object.keys(CATEGORIES)).filter((kind) => seconds[kind] > 0);
  const nodes = kinds.map((kind) => h("li", { "data-kind": kind }, `${CATEGORIES[kind]} ${amountText(seconds[kind])}`));
  const phases = lanes.phases.map((phase, index) => phaseNode(phase, colourOfPhase(lanes.phases, index)));
  const waits = lanes.attempts.some(({ ranks }) => ranks.some(({ waiting }) => waiting.some(Boolean)));
  const ranks = phases.length ? [h("li", { class: "plain" }, "Ranks:"), ...phases, ...(waits ? [h("li", { "data-kind": "waits" }, "waits for others")] : [])] : [];
  patchChildren(byId("timeline-legend"), [...nodes, ...ranks]);
}

/** @param {string} phase @param {string} colour */
function phaseNode(phase, colour) {
  const node = h("li", {}, h("bdi", {}, phase));
  node.style.setProperty("--tone", colour.startsWith("--") ? `var(${colour})` : colour);
  return node;
}
