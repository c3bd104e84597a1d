/**
 * When the lines of the one log that is shown came, from the keeper's record: asked for while rows are shown, at most
 * once in a few seconds.
 *
 * @typedef {{rank: number, stream: string, attempt: number}} Source
 */
import { call } from "../shared/api.js";
import { setRowTime } from "./log-permalink.js";

/** Milliseconds between two requests. */
const INTERVAL = 2000;

export class LineTimes {
  #jobId;
  #renderer;
  #isWanted;
  #timer = 0;
  /** Whose rows are shown. @type {Source | null} */
  #source = null;
  /** Of the log that was asked for last. @type {{key: string, at: number, items: [offset: number, time: number][]} | null} */
  #known = null;

  /** @param {string} jobId @param {import("./log-renderer.js").LogRenderer} renderer @param {() => boolean} isWanted */
  constructor(jobId, renderer, isWanted) {
    this.#jobId = jobId;
    this.#renderer = renderer;
    this.#isWanted = isWanted;
  }

  /** Show the times of the rows that have none yet. @param {Source} source */
  update(source) {
    this.#source = source;
    if (this.#timer || !this.#isWanted()) return;
    void this.#annotate(source);
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      if (this.#source) void this.#annotate(this.#source);
    }, INTERVAL);
  }

  /** @param {Source} source */
  async #annotate({ rank, stream, attempt }) {
    const rows = this.#renderer.rowsWithoutTime(attempt);
    if (!rows.length || attempt === 0) return;
    const [from, to] = [offsetOf(rows[0]), offsetOf(rows[rows.length - 1]) + 1];
    try {
      const { items } = await call("GET /jobs/{job_id}/ranks/{rank}/log/times", { job_id: this.#jobId, rank, stream, attempt, from, to });
      let index = 0;
      for (const row of rows) {
        while (index < items.length && items[index][0] <= offsetOf(row)) index += 1;
        if (index < items.length) setRowTime(row, items[index][1]);
      }
    } catch (error) {
      console.warn("the times of the log could not be read", error);
    }
  }

  /**
   * The byte that came at `at` (seconds since 1970) or next; null where nobody knows.
   *
   * @param {Source} source @param {number} at
   */
  async offsetAt(source, at) {
    const items = await this.#timesOf(source, at);
    const index = items.findIndex(([, time]) => time >= at);
    return items.length ? (items[(index < 0 ? items.length : index) - 1]?.[0] ?? 0) : null;
  }

  /** The times of a whole log; asked for again where it may have grown past `at`. @param {Source} source @param {number} at */
  async #timesOf({ rank, stream, attempt }, at) {
    const key = `${rank}-${stream}-${attempt}`;
    const known = this.#known;
    const isOld = known === null || performance.now() - known.at > INTERVAL;
    if (known?.key === key && (!isOld || at <= (known.items.at(-1)?.[1] ?? 0))) return known.items;
    const { items } = await call("GET /jobs/{job_id}/ranks/{rank}/log/times", { job_id: this.#jobId, rank, stream, attempt });
    this.#known = { key, at: performance.now(), items };
    return items;
  }
}

/** @param {HTMLElement} row */
const offsetOf = (row) => Number(row.dataset.offset);
