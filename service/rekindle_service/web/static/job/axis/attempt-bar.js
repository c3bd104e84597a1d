/**
 * The row of the attempts: what each stretch of the job's time went into.
 *
 * @import { TimeBreakdown } from "../../shared/api-types.d.ts"
 * @import { Scale } from "../../charts/chart-frame.js"
 * @typedef {keyof TimeBreakdown["seconds"]} Category
 * @typedef {{kind: string, from: number, to: number, label: string, title: string}} Stretch in seconds since the epoch
 */
import { pixelOf } from "../../charts/chart-frame.js";
import { byId, h, reorderChildren, setText } from "../../shared/dom.js";
import { duration } from "../../shared/format.js";
import { secondsOf } from "./axis-model.js";

/** The labels of the categories, in the order of the legend. @type {Record<Category, string>} */
export const CATEGORIES = { training: "training", saving: "saving", replayed: "replayed", stalled: "stalled", starting: "starting", waiting: "backing off", queued: "queued" };
/** The number of an attempt needs so much room. */
const MIN_LABEL_PX = 18;

const bar = byId("timeline");

/** @param {Stretch[]} stretches @param {Scale} scale */
export function drawAttempts(stretches, scale) {
  const before = /** @type {HTMLElement[]} */ ([...bar.children]);
  const shown = stretches.filter(({ from, to }) => to > scale.min && from < scale.max);
  reorderChildren(bar, shown.map((stretch, index) => draw(stretch, scale, before[index])));
}

/** @param {Stretch} stretch @param {Scale} scale @param {HTMLElement} [node] created where there is none yet */
function draw({ kind, from, to, label, title }, scale, node = h("span")) {
  const [left, right] = [Math.max(scale.from, pixelOf(scale, from)), Math.min(scale.to, pixelOf(scale, to))];
  node.dataset.kind = kind;
  node.title = title;
  node.style.left = `${left - scale.from}px`;
  node.style.width = `${Math.max(right - left, 1)}px`;
  setText(node, right - left >= MIN_LABEL_PX ? label : "");
  return node;
}

/** @param {TimeBreakdown} time @returns {Stretch[]} */
export function stretchesOfTime({ intervals }) {
  /** @type {Set<number | null>} */
  const named = new Set([null]);
  return intervals.map(({ category, attempt, started_at: started, seconds }) => {
    const from = secondsOf(started) ?? 0;
    const title = `${attempt === null ? "" : `attempt ${attempt}: `}${CATEGORIES[category]} ${amountText(seconds)}`;
    const label = category === "starting" || named.has(attempt) ? "" : String(attempt);
    if (label) named.add(attempt);
    return { kind: category, from, to: from + seconds, label, title };
  });
}

/** @param {number} seconds */
export const amountText = (seconds) => (seconds < 0.5 ? "under 1 s" : duration(seconds));
