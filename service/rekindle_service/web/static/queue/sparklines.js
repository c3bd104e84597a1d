/**
 * A small curve of one metric for each running job. The metric is chosen for all rows; a job that has not logged it shows
 * its first loss, or its first metric.
 *
 * @import { MetricSeries } from "../shared/api-types.d.ts"
 * @typedef {import("./job-row.js").JobRow} JobRow
 */
import { call, warn } from "../shared/api.js";
import { remember, remembered } from "../shared/browser-storage.js";
import { byId } from "../shared/dom.js";
import { everySecond } from "../shared/timing.js";

const KEY = "rekindle-sparkline";
const INTERVAL = 5; // seconds
const MAX_ROWS = 16;
const MAX_NAMES = 100;
const MAX_POINTS = 40;

export class Sparklines {
  #select = byId("metric", HTMLSelectElement);
  #rows;
  /** @type {Set<string>} */
  #names = new Set();
  #chosen = String(remembered(KEY) ?? "");
  #seconds = 0;
  #isBusy = false;

  /** @param {() => JobRow[]} rows those of running jobs */
  constructor(rows) {
    this.#rows = rows;
    this.#select.addEventListener("change", () => {
      this.#chosen = this.#select.value;
      remember(KEY, this.#chosen);
      void this.refresh();
    });
    everySecond(() => ++this.#seconds % INTERVAL === 0 && void this.refresh());
  }

  async refresh() {
    if (this.#isBusy) return;
    this.#isBusy = true;
    await Promise.all(this.#rows().slice(0, MAX_ROWS).map((row) => this.#draw(row).catch(warn("a metric"))));
    this.#isBusy = false;
  }

  /** @param {JobRow} row */
  async #draw(row) {
    const job = row.job;
    if (!job?.attempt) return;
    const { items } = await call("GET /jobs/{job_id}/metrics/names", { job_id: job.id, limit: MAX_NAMES });
    const names = items.map(({ name }) => name);
    this.#offer(names);
    const name = names.includes(this.#chosen) ? this.#chosen : (names.find((each) => /loss/i.test(each)) ?? names[0]);
    if (!name) return;
    const series = await call("GET /jobs/{job_id}/metrics", { job_id: job.id, name: [name], max_points: MAX_POINTS });
    row.showCurve(name, valuesOf(series.items));
  }

  /** @param {string[]} names */
  #offer(names) {
    for (const name of names) {
      if (this.#names.has(name) || this.#names.size >= MAX_NAMES) continue;
      this.#names.add(name);
      this.#select.add(new Option(name, name, false, name === this.#chosen));
    }
    byId("metric-choice").hidden = this.#names.size < 2;
  }
}

/** Finite values of all attempts, the latest last. @param {MetricSeries[]} series */
const valuesOf = (series) => series.flatMap(({ points }) => points.flatMap(([, , , value]) => value ?? [])).slice(-MAX_POINTS * 2);
