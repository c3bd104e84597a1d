/**
 * Metric points by name and attempt, and which of them a later attempt has replayed. Pure.
 *
 * @import { MetricSeries } from "../shared/api-types.d.ts"
 * @import { Point } from "./chart-data.js"
 * @typedef {{attempt: number, kept: Point[], replayed: Point[]}} Part
 */

/** Points kept of one series while a page stays open; beyond it every second of them is dropped. */
const MAX_POINTS = 4000;

export class MetricStore {
  /** @type {Set<string>} of all metrics; points are kept of those that are tracked */
  #names = new Set();
  /** @type {Set<string>} of metrics that the script reports: what it prints by the same name does not count */
  #reported = new Set();
  /** @type {Map<string, Map<number, Point[]>>} by name, then by attempt */
  #series = new Map();

  /** @param {{name: string, printed: object | null}[]} metrics */
  addNames(metrics) {
    for (const { name, printed } of metrics) {
      this.#names.add(name);
      if (!printed) this.#reported.add(name);
    }
  }

  /** @param {string} name @returns {boolean} whether its points are kept */
  has(name) {
    return this.#series.has(name);
  }

  /** Keep the points of this metric from now on. @param {string} name */
  track(name) {
    this.#names.add(name);
    if (!this.has(name)) this.#series.set(name, new Map());
  }

  /** Load what the server has; points that the stream brought meanwhile stay. @param {MetricSeries[]} items */
  load(items) {
    for (const { attempt, name, points } of items) {
      const known = this.#points(name, attempt);
      const last = points.at(-1)?.[0] ?? -Infinity;
      known.splice(0, known.length, ...points, ...known.filter(([step]) => step > last));
    }
  }

  /**
   * Add live points; known ones (a page loads while the stream runs) are skipped.
   *
   * @param {number} attempt
   * @param {{step: number, epoch: number | null, at: number, values: Record<string, number | null>}[]} points
   * @param {boolean} [isPrinted] whether they were read from the output
   * @returns {boolean} whether there is a new metric, or one is reported that had only been printed
   */
  append(attempt, points, isPrinted = false) {
    const before = this.#names.size + this.#reported.size;
    for (const { step, epoch, at, values } of points) {
      for (const [name, value] of Object.entries(values)) {
        this.#names.add(name);
        if (!isPrinted && !this.#reported.has(name)) {
          this.#reported.add(name);
          this.#series.get(name)?.delete(attempt);
        }
        if (!this.has(name) || (isPrinted && this.#reported.has(name))) continue;
        const known = this.#points(name, attempt);
        if (known.length && step <= known[known.length - 1][0]) continue;
        known.push([step, epoch, at, value]);
        if (known.length > MAX_POINTS) halve(known);
      }
    }
    return this.#names.size + this.#reported.size > before;
  }

  /** Names of all metrics, sorted. */
  names() {
    return sortMetrics([...this.#names]);
  }

  /**
   * One part per attempt that reported this metric. A later attempt replays the steps beyond the one it resumed from.
   *
   * @param {string} name
   * @param {Map<number, number>} resumedFrom see `resumeSteps`; an attempt that is not in it is taken to resume just before its first point
   * @returns {Part[]}
   */
  parts(name, resumedFrom) {
    const attempts = [...(this.#series.get(name) ?? new Map()).entries()].sort(([one], [other]) => one - other);
    return attempts.map(([attempt, points]) => {
      const later = attempts.filter(([other]) => other > attempt).map(([other, own]) => resumedFrom.get(other) ?? (own[0]?.[0] ?? Infinity) - 1);
      const limit = Math.min(Infinity, ...later);
      return {
        attempt,
        kept: points.filter((/** @type {Point} */ [step]) => step <= limit),
        replayed: points.filter((/** @type {Point} */ [step]) => step > limit),
      };
    });
  }

  /** When an attempt logged which step, as far as points are kept. @param {number} attempt @returns {[at: number, step: number][]} */
  stepTimes(attempt) {
    const all = [...this.#series.values()].map((byAttempt) => byAttempt.get(attempt) ?? []);
    const most = all.reduce((one, other) => (other.length > one.length ? other : one), /** @type {Point[]} */ ([]));
    return most.map(([step, , at]) => [at, step]);
  }

  /** @param {string} name @param {number} attempt @returns {Point[]} */
  #points(name, attempt) {
    this.track(name);
    const byAttempt = /** @type {Map<number, Point[]>} */ (this.#series.get(name));
    const points = byAttempt.get(attempt) ?? [];
    byAttempt.set(attempt, points);
    return points;
  }
}

/** Losses first, then accuracies, then the rest in their order. @param {string[]} names */
export function sortMetrics(names) {
  const weight = (/** @type {string} */ name) => (/loss/i.test(name) ? 0 : /acc/i.test(name) ? 1 : 2);
  return names.sort((one, other) => weight(one) - weight(other));
}

/**
 * The step from which each attempt resumed, 0 for a fresh start; without those whose script has loaded a checkpoint of its own.
 *
 * @param {{number: number, resumed_from_step: number | null, resumed_from_path: string | null}[]} attempts
 */
export const resumeSteps = (attempts) =>
  new Map(attempts.filter(({ resumed_from_step: step, resumed_from_path: path }) => step !== null || path === null).map((attempt) => [attempt.number, attempt.resumed_from_step ?? 0]));

/** Drop every second of the older points; the latest stays. @param {Point[]} points */
function halve(points) {
  const kept = points.filter((_, index) => (points.length - 1 - index) % 2 === 0);
  points.splice(0, points.length, ...kept);
}
