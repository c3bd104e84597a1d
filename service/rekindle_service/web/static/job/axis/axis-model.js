/**
 * The axis that all parts of a job's page share: what it spans, and which step belongs to which time. Pure.
 *
 * @import { AttemptPublic as Attempt, JobPublic as Job, Lanes, TimeBreakdown } from "../../shared/api-types.d.ts"
 * @import { Unit } from "../../charts/chart-data.js"
 * @import { Idle } from "../../charts/chart-frame.js"
 * @typedef {[from: number, to: number]} Span in the unit of an axis: seconds since 1970, steps or epochs
 * @typedef {{attempt: number, begin: number, end: number, first: number, last: number, known: [at: number, step: number][]}} Course
 * of an attempt: its times in seconds since the epoch, its steps, and which step was reached when, both ascending
 */
import { interpolated } from "../../charts/chart-data.js";

/** What an idle stretch is drawn as at most, and all of them together, as shares of the time that is not idle. */
const MAX_IDLE = { one: 0.04, all: 0.4 };

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
