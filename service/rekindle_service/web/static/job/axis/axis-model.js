/**
 * The axis that all parts of a job's page share: what it spans, and which step belongs to which time. Pure.
 *
 * @import { AttemptPublic as Attempt, JobPublic as Job, Lanes } from "../../shared/api-types.d.ts"
 * @import { Axis } from "./view-state.js"
 * @typedef {[from: number, to: number]} Span in the unit of an axis: seconds since the epoch, or steps
 * @typedef {{attempt: number, begin: number, end: number, first: number, last: number, known: [at: number, step: number][]}} Course
 * of an attempt: its times in seconds since the epoch, its steps, and which step was reached when, both ascending
 */

/** A longer wait in the queue, as a share of the whole, is not shown at first. */
const MAX_QUEUED_SHARE = 0.3;

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

/** @param {[number, number][]} pairs ascending @param {number} value */
function interpolated(pairs, value) {
  const next = pairs.findIndex(([each]) => each >= value);
  if (next <= 0) return pairs[next === 0 ? 0 : pairs.length - 1][1];
  const [[x0, y0], [x1, y1]] = [pairs[next - 1], pairs[next]];
  return x1 > x0 ? y0 + ((value - x0) / (x1 - x0)) * (y1 - y0) : y1;
}

/** A cursor on another axis; null where it has no place there. @param {Course[]} courses @param {Axis} by @param {number | null} at seconds since the epoch */
export const positionOf = (courses, by, at) => (at === null || by === "time" ? at : stepAt(courses, at));

/** The time of a position. @param {Course[]} courses @param {Axis} by @param {number | null} position */
export const timeOf = (courses, by, position) => (position === null || by === "time" ? position : timeAt(courses, position));

/**
 * What is shown of a job at first: all its steps, or all its time without a long wait in the queue.
 *
 * @param {Job} job @param {Course[]} courses @param {Axis} by @param {number} now seconds since the epoch @returns {Span}
 */
export function wholeSpan(job, courses, by, now) {
  if (by === "step") {
    const last = Math.max(1, ...courses.map((course) => course.last));
    return [Math.min(last - 1, ...courses.map((course) => course.first)), last];
  }
  const created = secondsOf(job.created_at) ?? now;
  const end = Math.max(secondsOf(job.ended_at) ?? now, created + 1, ...courses.map((course) => course.end));
  const launched = courses.at(0)?.begin ?? created;
  const isLong = launched - created > MAX_QUEUED_SHARE * (end - created);
  return [isLong ? launched - 0.02 * (end - launched) : created, end];
}
