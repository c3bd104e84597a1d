/**
 * The axis that all parts of a job's page share: what it spans, and which step belongs to which time and epoch. Pure.
 *
 * @import { AttemptPublic as Attempt, JobPublic as Job, Lanes, TimeBreakdown } from "../../shared/api-types.d.ts"
 * @import { Idle } from "../../charts/chart-frame.js"
 * @import { Axis } from "./view-state.js"
 * @typedef {[from: number, to: number]} Span in the unit of an axis: seconds since 1970, steps or epochs
 * @typedef {[step: number, epoch: number][]} Epochs which epoch begins after which step, both ascending; at least two
 * @typedef {object} Unit of an axis
 * @property {Axis} by
 * @property {(step: number) => number} ofStep the position of a step, on an axis of steps or epochs
 * @property {(position: number) => number} toStep
 * @typedef {{attempt: number, begin: number, end: number, first: number, last: number, known: [at: number, step: number][]}} Course
 * of an attempt: its times in seconds since the epoch, its steps, and which step was reached when, both ascending
 */

/** What an idle stretch is drawn as at most, and all of them together, as shares of the time that is not idle. */
const MAX_IDLE = { one: 0.04, all: 0.4 };
/** More epochs than any job has. */
const MANY = 1e6;

/** Seconds since the epoch; null where there is no time. @param {string | null | undefined} time */
export const secondsOf = (time) => (time ? Date.parse(time) / 1000 : null);

/**
 * Which step each attempt had reached when, as far as it is known.
 *
 * @param {Attempt[]} attempts @param {Lanes | null} lanes @param {(attempt: number) => [at: number, step: number][]} reported steps
 * @param {number} now seconds since the epoch @returns {Course[]}
 */
export function coursesOf(attempts, lanes, reported, now) {
  return attempts.flatMap(({ number, started_at: started, ranks_running_at: running, ended_at: ended, resumed_from_step: resumed, last_step: last }) => {
    const begin = secondsOf(started);
    if (begin === null) return [];
    const end = Math.max(begin, secondsOf(ended) ?? now);
    const steps = [...stepsOf(lanes, number), ...reported(number)].sort(([one], [other]) => one - other);
    const known = ascending([[secondsOf(running) ?? begin, resumed ?? 0], ...steps, ...(last === null ? [] : [/** @type {[number, number]} */ ([end, last])])]);
    return [{ attempt: number, begin, end, first: known[0][1], last: known[known.length - 1][1], known }];
  });
}

/** Of the first rank that reports steps. @param {Lanes | null} lanes @param {number} attempt @returns {[number, number][]} */
function stepsOf(lanes, attempt) {
  const found = lanes?.attempts.find((each) => each.attempt === attempt);
  const lane = found?.ranks.find(({ step }) => step.some((each) => each !== null));
  return found && lane ? lane.step.flatMap((step, index) => (step === null ? [] : [/** @type {[number, number]} */ ([found.at[index], step])])) : [];
}

/** Without what goes back, as where a clock was set. @param {[number, number][]} known @returns {[number, number][]} */
function ascending(known) {
  let [latest, highest] = [-Infinity, -Infinity];
  return known.filter(([at, step]) => {
    if (at < latest || step < highest) return false;
    [latest, highest] = [at, step];
    return true;
  });
}

/** The step that was reached at a time, with its completed part; null between attempts. @param {Course[]} courses @param {number} at */
export function stepAt(courses, at) {
  const course = courses.findLast(({ begin, end }) => begin <= at && at <= end);
  return course ? interpolated(course.known, at) : null;
}

/** When a step was reached, in the latest attempt that reached it; null for none. @param {Course[]} courses @param {number} step */
export function timeAt(courses, step) {
  const course = courses.findLast(({ first, last }) => first <= step && step <= last);
  return course ? interpolated(course.known.map(([at, each]) => [each, at]), step) : null;
}

/** When steps of given attempts were reached; without those of which it is not known. @param {Course[]} courses @param {{step: number, attempt: number}[]} steps */
export function timesOf(courses, steps) {
  const inverted = new Map(courses.map(({ attempt, known }) => [attempt, known.map(([at, step]) => /** @type {[number, number]} */ ([step, at]))]));
  return steps.flatMap(({ step, attempt }) => (inverted.has(attempt) ? [interpolated(inverted.get(attempt) ?? [], step)] : []));
}

/** @param {[number, number][]} pairs ascending @param {number} value */
function interpolated(pairs, value) {
  const next = pairs.findIndex(([each]) => each >= value);
  if (next <= 0) return pairs[next === 0 ? 0 : pairs.length - 1][1];
  const [[x0, y0], [x1, y1]] = [pairs[next - 1], pairs[next]];
  return x1 > x0 ? y0 + ((value - x0) / (x1 - x0)) * (y1 - y0) : y1;
}

/**
 * Which step each epoch begins after: by the length of the job where it reports that, else by the points of its metrics.
 * The first point of an epoch is then its first step, or its last, where no epoch has more than one.
 *
 * @param {Job} job @param {[step: number, epoch: number | null, ...unknown[]][]} points
 * @returns {Epochs | null} null where too little is known
 */
export function epochsOf({ steps, epochs }, points) {
  if (steps && epochs) return [[0, 0], [MANY * steps, MANY * epochs]];
  /** @type {Map<number, [first: number, last: number]>} */
  const seen = new Map();
  for (const [step, epoch] of points) {
    if (epoch === null) continue;
    const [first, last] = seen.get(epoch) ?? [step, step];
    seen.set(epoch, [Math.min(first, step), Math.max(last, step)]);
  }
  const found = [...seen].sort(([one], [other]) => one - other);
  if (found.length < 2) return null;
  const atEnd = found.every(([, [first, last]]) => first === last);
  return prolonged(found.map(([epoch, [first]]) => /** @type {Epochs[number]} */ (atEnd ? [first, epoch + 1] : [first - 1, epoch])));
}

/** Extended to the first step and beyond the last, by epochs as long as their neighbours. @param {Epochs} known @returns {Epochs | null} */
function prolonged(known) {
  const [first, last] = [lengthOf(known[0], known[1]), lengthOf(known[known.length - 2], known[known.length - 1])];
  if (!(first > 0 && last > 0)) return null;
  const [[step, epoch], [endStep, endEpoch]] = [known[0], known[known.length - 1]];
  const before = Math.max(0, Math.min(epoch, step / first));
  return [[step - before * first, epoch - before], ...known, [endStep + MANY * last, endEpoch + MANY]];
}

/** Steps of an epoch. @param {Epochs[number]} one @param {Epochs[number]} next */
const lengthOf = ([s0, e0], [s1, e1]) => (s1 - s0) / (e1 - e0);

/** @param {Axis} by @param {Epochs | null} epochs @returns {Unit} of steps where there shall be epochs and none are known */
export function unitOf(by, epochs) {
  const same = (/** @type {number} */ value) => value;
  if (by !== "epoch" || !epochs) return { by: by === "time" ? "time" : "step", ofStep: same, toStep: same };
  const toStep = (/** @type {number} */ epoch) => Number(interpolated(epochs.map(([each, at]) => [at, each]), epoch).toFixed(6));
  return { by, ofStep: (step) => interpolated(epochs, step), toStep };
}

/** A cursor on another axis; null where it has no place there. @param {Course[]} courses @param {Unit} unit @param {number | null} at seconds since 1970 */
export function positionOf(courses, { by, ofStep }, at) {
  const step = at === null || by === "time" ? at : stepAt(courses, at);
  return step === null || by === "time" ? step : ofStep(step);
}

/** The time of a position. @param {Course[]} courses @param {Unit} unit @param {number | null} position */
export const timeOf = (courses, { by, toStep }, position) => (position === null || by === "time" ? position : timeAt(courses, toStep(position)));

/** What is reached on an axis within a range of time; null for nothing. @param {Course[]} courses @param {Unit} unit @param {Span} range @returns {Span | null} */
export function positionsWithin(courses, { by, ofStep }, [from, to]) {
  if (by === "time") return [from, to];
  const reached = courses.filter(({ begin, end }) => begin < to && end > from).flatMap(({ begin, end, known }) => [interpolated(known, Math.max(begin, from)), interpolated(known, Math.min(end, to))]);
  const [low, high] = [Math.min(...reached), Math.max(...reached)];
  return low <= high ? [ofStep(low === high ? low - 1 : low), ofStep(high)] : null;
}

/** When a range of an axis was first reached, and last. @param {Course[]} courses @param {Unit} unit @param {Span} range @returns {Span | null} */
export function timesWithin(courses, { by, toStep }, range) {
  if (by === "time") return range;
  const [low, high] = range.map(toStep);
  const times = courses.filter(({ first, last }) => first < high && last > low).flatMap((course) => [Math.max(low, course.first), Math.min(high, course.last)].map((step) => timeAt([course], step) ?? course.end));
  return times.length ? [Math.min(...times), Math.max(...times)] : null;
}

/**
 * All the time of a job, or all its steps.
 *
 * @param {Job} job @param {Course[]} courses @param {Unit} unit @param {number} now seconds since 1970 @returns {Span}
 */
export function wholeSpan(job, courses, { by, ofStep }, now) {
  if (by !== "time") {
    const last = Math.max(2, ...courses.map((course) => course.last));
    return [ofStep(Math.min(last - 2, ...courses.map((course) => course.first))), ofStep(last)];
  }
  const created = secondsOf(job.created_at) ?? now;
  return [created, Math.max(secondsOf(job.ended_at) ?? now, created + 1, ...courses.map((course) => course.end))];
}

/** Long waits in the queue and between attempts, which are drawn shorter than they were. @param {TimeBreakdown | null} time @returns {Idle[]} */
export function idleOf(time) {
  const [idle, busy] = [true, false].map((wanted) => (time?.intervals ?? []).filter(({ category }) => (category === "queued" || category === "waiting") === wanted));
  const shown = busy.reduce((sum, { seconds }) => sum + seconds, 0) * Math.min(MAX_IDLE.one, MAX_IDLE.all / idle.length);
  const long = idle.filter(({ seconds }) => shown > 0 && seconds > shown);
  return long.map(({ started_at: started, seconds }) => ({ from: secondsOf(started) ?? 0, to: (secondsOf(started) ?? 0) + seconds, shown }));
}
