/**
 * A thin lane for each rank: its colour is the phase, its strength the use of the device, and the part that is grey from
 * the top the share of the time in which the rank waited for others. So the rank that the others wait for can be recognized.
 * Or its colours are the values of a measure.
 *
 * @import { AttemptLanes, Lanes, RankLane } from "../../shared/api-types.d.ts"
 * @import { Scale } from "../../charts/chart-frame.js"
 * @import { Heat } from "./rank-measures.js"
 */
import { pixelOf } from "../../charts/chart-frame.js";
import { CHOSEN, ColourResolver, colourOf } from "../../charts/palette.js";
import { byId, h, patchChildren } from "../../shared/dom.js";

/** Pixels of a lane with the gap below it, by the number of ranks up to which it is used. */
const HEIGHTS = [[4, 20], [8, 16], [16, 12], [64, 7], [128, 4], [Infinity, 2]];
/** Below a lane that is thick enough. */
const GAP_PX = 1;
const MIN_GAPPED_PX = 4;
/** Between the pointer and its box. */
const TIP_PX = 12;
/** Between two numbers of ranks at the left. */
const MIN_LABEL_PX = 13;
/** Pixels from which a part of a lane is drawn in its own colour; a thinner lane mixes both colours. */
const MIN_SPLIT_PX = 11;
/** How much of its colour a lane has whose device does nothing. */
const IDLE = 0.45;
/** Phases with a colour of their own; the others get one of the curves'. */
const COLOURS = new Map([["running", "--good"], ["train", "--good"], ["snapshot", "--accent"], ["evaluate", "--calm"], ["restore", "--border-strong"]]);
const WAITING = "--faint";
/** Width of the mark of a rank that failed. */
const MARK_PX = 5;

export class RankLanes {
  #host = byId("lanes");
  #labels = byId("lane-labels");
  #canvas = byId("lane-canvas", HTMLCanvasElement);
  #tip = h("div", { class: "chart-tip", "aria-hidden": "true", hidden: true });
  #colours;
  /** @type {number[]} ascending */
  #ranks = [];
  #height = HEIGHTS[0][1];

  constructor() {
    const probe = h("span", { hidden: true });
    this.#host.append(probe);
    this.#host.parentElement?.append(this.#tip);
    this.#colours = new ColourResolver(probe);
  }

  /** Colours are others with another theme. */
  forgetColours() {
    this.#colours.forget();
  }

  /** The rank whose lane is at a height of the window; null for none. @param {number} clientY */
  rankAt(clientY) {
    const { top, bottom } = this.#host.getBoundingClientRect();
    if (clientY < top || clientY >= bottom) return null;
    return this.#ranks[Math.floor((clientY - this.#canvas.getBoundingClientRect().top) / this.#height)] ?? null;
  }

  /** The rank after this one or before it; it can be seen then. @param {number | null} rank @param {1 | -1} direction */
  beside(rank, direction) {
    const index = Math.max(0, Math.min(this.#ranks.length - 1, this.#ranks.indexOf(rank ?? -1) + direction));
    if (index * this.#height < this.#host.scrollTop || (index + 1) * this.#height > this.#host.scrollTop + this.#host.clientHeight) this.#host.scrollTop = (index - 1) * this.#height;
    return this.#ranks[index] ?? null;
  }

  /** @param {PointerEvent | null} event null: nowhere @param {string} text */
  showTip(event, text) {
    this.#tip.hidden = !event || !text;
    if (!event || this.#tip.hidden) return;
    const { left, top, width } = this.#host.getBoundingClientRect();
    const [x, isLeft] = [event.clientX - left, event.clientX - left < width / 2];
    this.#tip.textContent = text;
    this.#tip.style.top = `${this.#host.offsetTop + event.clientY - top + TIP_PX}px`;
    this.#tip.style.left = isLeft ? `${x + TIP_PX}px` : "auto";
    this.#tip.style.right = isLeft ? "auto" : `${width - x + TIP_PX}px`;
  }

  /** Replace the text of the tip where it is shown: what it describes may be loaded after it. @param {string} text */
  updateTip(text) {
    if (!this.#tip.hidden && text) this.#tip.textContent = text;
  }

  /** @param {Lanes} lanes @param {Scale} scale @param {number} width in CSS pixels @param {number | null} chosen rank @param {Heat | null} heat */
  draw(lanes, scale, width, chosen, heat) {
    this.#ranks = [...new Set(lanes.attempts.flatMap(({ ranks }) => ranks.map(({ rank }) => rank)))].sort((one, other) => one - other);
    this.#height = /** @type {number[]} */ (HEIGHTS.find(([most]) => this.#ranks.length <= most))[1];
    this.#host.hidden = !this.#ranks.length;
    this.#drawLabels(failedRanks(lanes), chosen);
    const context = this.#prepare(width);
    const rows = new Map(this.#ranks.map((rank, index) => [rank, index * this.#height]));
    context.fillStyle = this.#colours.resolve("--grid");
    for (const top of rows.values()) context.fillRect(scale.from, top, scale.to - scale.from, this.#filled());
    for (const attempt of lanes.attempts) {
      const columns = columnsOf(attempt, scale);
      for (const lane of attempt.ranks) this.#drawLane(context, lanes, attempt, lane, columns, scale, rows.get(lane.rank) ?? 0, heat);
    }
    context.clearRect(0, 0, scale.from, this.#canvas.height);
    context.clearRect(scale.to, 0, width, this.#canvas.height);
  }

  /** Height of a lane without its gap. */
  #filled() {
    return this.#height - (this.#height < MIN_GAPPED_PX ? 0 : GAP_PX);
  }

  /** @param {number} width */
  #prepare(width) {
    const height = this.#ranks.length * this.#height;
    const context = this.#canvas.getContext("2d");
    if (!context) throw new Error("this browser cannot draw on a canvas");
    this.#canvas.style.height = `${height}px`;
    this.#canvas.width = Math.round(width * devicePixelRatio);
    this.#canvas.height = Math.round(height * devicePixelRatio);
    context.scale(devicePixelRatio, devicePixelRatio);
    return context;
  }

  /** @param {Set<number>} failed @param {number | null} chosen */
  #drawLabels(failed, chosen) {
    const stride = Math.ceil(MIN_LABEL_PX / this.#height);
    const indices = this.#ranks.map((_, index) => index);
    const byImportance = [
      ...indices.filter((index) => this.#ranks[index] === chosen),
      ...indices.filter((index) => failed.has(this.#ranks[index])),
      ...indices.filter((index) => index % stride === 0),
    ];
    /** @type {Set<number>} */
    const labelled = new Set();
    for (const index of byImportance) if (![...labelled].some((other) => Math.abs(other - index) < stride)) labelled.add(index);
    const nodes = [...labelled].sort((one, other) => one - other).map((index) => {
      const rank = this.#ranks[index];
      const node = h("span", { class: failed.has(rank) ? "failed" : null, "data-chosen": String(rank === chosen) }, String(rank));
      node.style.top = `${(index + 0.5) * this.#height}px`;
      return node;
    });
    patchChildren(this.#labels, nodes);
  }

  /**
   * @param {CanvasRenderingContext2D} context @param {Lanes} lanes @param {AttemptLanes} attempt @param {RankLane} lane
   * @param {number[]} columns pixels @param {Scale} scale @param {number} top pixel @param {Heat | null} heat
   */
  #drawLane(context, lanes, attempt, lane, columns, scale, top, heat) {
    const height = this.#filled();
    const fill = (/** @type {string} */ colour, /** @type {number} */ alpha, /** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ share) => {
      const [left, right] = [Math.max(scale.from, from), Math.min(scale.to, to)];
      if (right <= left) return;
      context.globalAlpha = alpha;
      context.fillStyle = this.#colours.resolve(colour);
      context.fillRect(Math.floor(left), top, Math.max(Math.floor(right) - Math.floor(left), 1), height * share);
    };
    const last = lane.phase.findLastIndex((each) => each !== null);
    const end = lane.ended_at ?? (last === attempt.at.length - 1 ? (attempt.ended_at ?? lanes.end) : 0);
    if (!heat) fill("--calm", IDLE, pixelOf(scale, attempt.started_at), pixelOf(scale, attempt.ranks_running_at ?? attempt.ended_at ?? lanes.end), 1);
    lane.phase.forEach((phase, index) => {
      if (phase === null) return;
      const [from, to] = [columns[index], index === last ? Math.max(columns[index + 1], pixelOf(scale, end)) : columns[index + 1]];
      if (heat) return fill(heat.colour(lane, index) ?? "--grid", 1, from, to, 1);
      const [use, waiting] = [lane.use[index] ?? null, lane.waiting[index] ?? 0];
      fill("--surface", 1, from, to, 1);
      fill(colourOfPhase(lanes.phases, phase), use === null ? 1 : IDLE + (1 - IDLE) * Math.min(1, use / 100), from, to, 1);
      if (waiting && height < MIN_SPLIT_PX) fill(WAITING, waiting, from, to, 1);
      else if (waiting) fill(WAITING, 1, from, to, waiting);
    });
    context.globalAlpha = 1;
    const exited = lane.ended_at ?? attempt.ended_at;
    if (lane.exit && exited) this.#drawEnd(context, pixelOf(scale, exited), top, height);
  }

  /** @param {CanvasRenderingContext2D} context @param {number} x @param {number} top @param {number} height pixels */
  #drawEnd(context, x, top, height) {
    context.fillStyle = this.#colours.resolve("--bad");
    context.fillRect(x - MARK_PX, top, MARK_PX, height);
  }
}

/** @param {Lanes} lanes */
const failedRanks = ({ attempts }) => new Set(attempts.flatMap(({ ranks }) => ranks.filter(({ exit }) => exit).map(({ rank }) => rank)));

/** @param {string[]} phases @param {number} phase its index @returns {string} a CSS colour, or the name of a variable */
export const colourOfPhase = (phases, phase) => COLOURS.get(phases[phase]) ?? ownColours(phases).get(phases[phase]) ?? "";

/** @type {WeakMap<string[], Map<string, string>>} */
const known = new WeakMap();

/** Colours of the other phases, by their names: whatever else is shown, a phase has the same unless two names collide. @param {string[]} phases */
function ownColours(phases) {
  const found = known.get(phases) ?? new Map();
  if (known.has(phases)) return found;
  known.set(phases, found);
  const names = phases.filter((name) => !COLOURS.has(name)).sort();
  const count = Math.max(names.length, CHOSEN);
  const taken = new Set();
  for (const name of names) {
    let index = [...name].reduce((sum, letter) => (sum * 31 + (letter.codePointAt(0) ?? 0)) >>> 0, 0) % count;
    while (taken.has(index)) index = (index + 1) % count;
    taken.add(index);
    found.set(name, colourOf(index, count));
  }
  return found;
}

/** Where each point of an attempt begins, and the last one ends, in pixels: a sample is about the time before it. @param {AttemptLanes} attempt @param {Scale} scale */
const columnsOf = ({ at, ranks_running_at: running, started_at: started }, scale) => [running ?? started, ...at].map((time) => pixelOf(scale, time));
