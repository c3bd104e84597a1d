/**
 * What each rank used over time: as colours of the lanes, and as lines of one rank among all. Loaded on demand.
 *
 * @import { AttemptLanes, Lanes, RankLane } from "../../shared/api-types.d.ts"
 * @import { Series } from "../../charts/chart-frame.js"
 * @typedef {keyof RankLane["measures"]} MeasureName
 * @typedef {(number | null)[]} Values
 * @typedef {object} Heat
 * @property {(lane: RankLane, point: number) => string | null} colour null where nothing is known
 * @property {(lane: RankLane, point: number) => string} text the value with its name and unit; empty where nothing is known
 * @property {() => HTMLElement} legend
 */
import { h } from "../../shared/dom.js";
import { count, significant } from "../../shared/format.js";

const GIGABYTE = 1e9;
/** From low to high, ever lighter: readable on both grounds, in grey, and whatever colours somebody can tell apart. */
const RAMP = [[0, 34, 78], [53, 69, 108], [124, 123, 120], [188, 174, 108], [254, 232, 56]];
/** A few extreme values would leave the rest in one colour. */
const HIGHEST_SHARE = 0.98;

/** @type {Record<string, {name: string, unit: string, most?: number, of: (attempt: AttemptLanes, lane: RankLane) => Values}>} */
const MEASURES = {
  step: { name: "step time", unit: "s", of: stepSeconds },
  waiting: { name: "waiting", unit: "%", most: 100, of: (_, { waiting }) => scaled(waiting, 0.01) },
  use: { name: "device", unit: "%", most: 100, of: (_, { use }) => use },
  cpu: { name: "CPU", unit: "cores", of: (_, { measures }) => scaled(measures.cpu, 100) },
  memory: { name: "memory", unit: "GB", of: (_, { measures }) => scaled(measures.memory, GIGABYTE) },
  gpu: { name: "GPU utilization", unit: "%", most: 100, of: (_, { measures }) => measures.gpu ?? [] },
  gpu_memory: { name: "GPU memory", unit: "GB", of: (_, { measures }) => scaled(measures.gpu_memory, GIGABYTE) },
};

/** @param {Values | undefined} values @param {number} unit */
const scaled = (values, unit) => (values ?? []).map((value) => value && value / unit);

/** Seconds of a step at each point; while a step takes longer than the one before, the time that it has taken so far. @param {AttemptLanes} attempt @param {RankLane} lane @returns {Values} */
function stepSeconds({ at, ranks_running_at: running, started_at: started }, { step }) {
  let [since, before, seconds] = [running ?? started, /** @type {number | null} */ (null), /** @type {number | null} */ (null)];
  return step.map((now, index) => {
    if (now === null) return null;
    if (before === null || now < before) [since, before, seconds] = [at[index], now, null];
    else if (now > before) [since, before, seconds] = [at[index], now, (at[index] - since) / (now - before)];
    else seconds = Math.max(seconds ?? 0, at[index] - since);
    return seconds;
  });
}

/** The latest one: lanes are drawn more often than they are fetched. @type {{of: string, lanes: Lanes | null, heat: Heat | null}} */
let latest = { of: "", lanes: null, heat: null };

/** @param {string} of a measure, or another word for none @param {Lanes} lanes @returns {Heat | null} */
export function heatOf(of, lanes) {
  if (latest.of !== of || latest.lanes !== lanes) latest = { of, lanes, heat: of in MEASURES ? makeHeat(of, lanes) : null };
  return latest.heat;
}

/** @param {string} of @param {Lanes} lanes @returns {Heat} */
function makeHeat(of, { attempts }) {
  const { name, unit, most, of: valuesOf } = MEASURES[of];
  const values = new Map(attempts.flatMap((attempt) => attempt.ranks.map((lane) => [lane, valuesOf(attempt, lane)])));
  const known = Float64Array.from([...values.values()].flat().filter((value) => value !== null)).sort();
  const high = Math.max(most ?? 0, known[Math.floor(HIGHEST_SHARE * (known.length - 1))] ?? 0) || 1;
  const low = most === undefined && known[0] < high ? known[0] : 0;
  const amount = (/** @type {number} */ value) => `${significant(value)} ${unit}`;
  const valueAt = (/** @type {RankLane} */ lane, /** @type {number} */ point) => values.get(lane)?.[point] ?? null;
  return {
    colour: (lane, point) => {
      const value = valueAt(lane, point);
      return value === null ? null : colourAt((value - low) / (high - low));
    },
    text: (lane, point) => {
      const value = valueAt(lane, point);
      return value === null ? "" : `${name} ${amount(value)}`;
    },
    legend: () => {
      const bar = h("span", { class: "heat-scale", role: "img", "aria-label": "dark blue to yellow" });
      bar.style.background = `linear-gradient(90deg, ${RAMP.map((colour) => `rgb(${colour.join()})`).join()})`;
      return h("li", { class: "plain" }, known.length ? `${name} ${amount(low)} ` : `${name}: no value`, known.length > 0 && bar, known.length > 0 && ` ${amount(high)}${known[known.length - 1] > high ? " and more" : ""}`);
    },
  };
}

const LEVELS = 48;
/** @type {string[]} */
const colours = Array.from({ length: LEVELS + 1 }, (_, level) => {
  const at = (level / LEVELS) * (RAMP.length - 1);
  const [low, high] = [RAMP[Math.floor(at)], RAMP[Math.ceil(at)]];
  return `rgb(${low.map((part, index) => Math.round(part + (at % 1) * (high[index] - part))).join()})`;
});

/** @param {number} share from 0 to 1, or beyond */
const colourAt = (share) => colours[Math.round(LEVELS * Math.max(0, Math.min(1, share)))];

/** The chosen rank, and of all ranks the lowest, median and highest value at each moment. @param {Lanes} lanes @param {number} rank */
export function chartsOfRanks({ attempts }, rank) {
  return ["cpu", "memory", "gpu", "gpu_memory"].map((of) => {
    const { name, unit, of: valuesOf } = MEASURES[of];
    const x = attempts.flatMap(({ at }) => [...at, null]); // between attempts no line
    const all = attempts.map((attempt) => attempt.ranks.map((lane) => ({ rank: lane.rank, values: valuesOf(attempt, lane) })));
    const line = (/** @type {(found: {rank: number, values: Values}[], point: number) => number | null} */ pick) =>
      attempts.flatMap(({ at }, index) => [...at.map((_, point) => pick(all[index], point)), null]);
    const ordered = (/** @type {number} */ share) =>
      line((found, point) => {
        const values = found.map(({ values: each }) => each[point] ?? null).filter((value) => value !== null).sort((one, other) => one - other);
        return values[Math.floor(share * (values.length - 1))] ?? null;
      });
    const own = line((found, point) => found.find((each) => each.rank === rank)?.values[point] ?? null);
    const ranks = Math.max(0, ...all.map(({ length }) => length));
    /** @type {Series[]} */
    const others = [
      { name: "lowest", x, y: ordered(0), colour: "--faint", width: 1 },
      { name: "highest", x, y: ordered(1), colour: "--faint", width: 1 },
      { name: `median of ${count(ranks)} ranks`, x, y: ordered(0.5), colour: "--calm", dash: true },
    ];
    const last = own.findLast((value) => value !== null) ?? null;
    const text = last === null ? "" : `rank ${rank}: ${significant(last)} ${unit}`;
    return { name: name[0].toUpperCase() + name.slice(1), unit, latest: text, series: [...(ranks > 1 ? others : []), { name: `rank ${rank}`, x, y: own }] };
  });
}
