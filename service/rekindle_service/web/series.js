/**
 * Metric points by name and attempt, and which of them a later attempt has done over again. Pure: no DOM, no Plotly.
 *
 * @typedef {import("./api.js").Point} Point
 * @typedef {{attempt: number, kept: Point[], redone: Point[]}} Part
 */

/** Points kept of one series while a page stays open; beyond it every second of them goes. */
const MOST_POINTS = 4000;

export class Metrics {
  /** @type {Set<string>} all that are known of; points are kept of those that are tracked */
  #names = new Set();
  /** @type {Map<string, Map<number, Point[]>>} by name, then by attempt */
  #series = new Map();

  /** @param {string[]} names */
  addNames(names) {
    names.forEach((name) => this.#names.add(name));
  }

  /** @param {string} name @returns {boolean} whether its points are kept */
  has(name) {
    return this.#series.has(name);
  }

  /** Keep the points of this metric from now on. @param {string} name */
  track(name) {
    this.#names.add(name);
    if (!this.#series.has(name)) this.#series.set(name, new Map());
  }

  /**
   * Take over what the server has; points that the stream brought while it answered stay.
   *
   * @param {import("./api.js").Series[]} items
   */
  load(items) {
    for (const { attempt, name, points } of items) {
      const known = this.#points(name, attempt);
      const last = points.at(-1)?.[0] ?? -Infinity;
      known.splice(0, known.length, ...points, ...known.filter(([step]) => step > last));
    }
  }

  /**
   * Add live points; those already known (a page loads while the stream runs) are passed over.
   *
   * @param {number} attempt
   * @param {{step: number, epoch: number | null, at: number, values: Record<string, number | null>}[]} points
   * @returns {boolean} whether a metric came that was not known
   */
  append(attempt, points) {
    const before = this.#names.size;
    for (const { step, epoch, at, values } of points) {
      for (const [name, value] of Object.entries(values)) {
        this.#names.add(name);
        if (!this.has(name)) continue;
        const known = this.#points(name, attempt);
        if (known.length && step <= known[known.length - 1][0]) continue;
        known.push([step, epoch, at, value]);
        if (known.length > MOST_POINTS) halve(known);
      }
    }
    return this.#names.size > before;
  }

  /** Names of all metrics: losses first, then accuracies, then the rest as they came. */
  names() {
    const weight = (/** @type {string} */ name) => (/loss/i.test(name) ? 0 : /acc/i.test(name) ? 1 : 2);
    return [...this.#names].sort((one, other) => weight(one) - weight(other));
  }

  /**
   * One part per attempt that reported this metric. What lies beyond the step where a later attempt went on was lost
   * and done again.
   *
   * @param {string} name
   * @param {Map<number, number>} resumedFrom step that each attempt went on from, 0 for one that began anew
   * @returns {Part[]}
   */
  parts(name, resumedFrom) {
    const attempts = [...(this.#series.get(name) ?? new Map()).entries()].sort(([one], [other]) => one - other);
    return attempts.map(([attempt, points]) => {
      const later = attempts.filter(([other]) => other > attempt).map(([other]) => resumedFrom.get(other) ?? 0);
      const limit = Math.min(Infinity, ...later);
      return {
        attempt,
        kept: points.filter((/** @type {Point} */ [step]) => step <= limit),
        redone: points.filter((/** @type {Point} */ [step]) => step > limit),
      };
    });
  }

  /**
   * @param {string} name
   * @param {number} attempt
   */
  #points(name, attempt) {
    const byAttempt = this.#series.get(name) ?? new Map();
    this.#series.set(name, byAttempt);
    const points = byAttempt.get(attempt) ?? [];
    byAttempt.set(attempt, points);
    return points;
  }
}

/** Drop every second of the older points; the newest stays. @param {Point[]} points */
function halve(points) {
  const kept = points.filter((_, index) => (points.length - 1 - index) % 2 === 0);
  points.splice(0, points.length, ...kept);
}
