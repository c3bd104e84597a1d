/**
 * What the server knows for the time axis: what the job's time went into, and the lanes of its ranks; fetched again as
 * long as the job has not ended.
 *
 * @import { DigestedStepPublic as DigestedStep, Lanes, TimeBreakdown } from "../../shared/api-types.d.ts"
 */
import { call, warn } from "../../shared/api.js";
import { every, latestWins } from "../../shared/timing.js";
import { idleOf, secondsOf } from "./axis-model.js";
import { readDigests } from "./digest-lane.js";
import { getView } from "./view-state.js";

/** The keeper takes a sample as often. */
const REFRESH_SECONDS = 5;

export class AxisData {
  #jobId;
  #points;
  #measures;
  #onChange;
  #fetch;
  /** Seconds by which the server's clock is ahead of the browser's. */
  #ahead = 0;
  /** The job has not ended. */
  isLive = false;
  /** @type {TimeBreakdown | null} */
  time = null;
  /** Stretches of it that are drawn shorter. @type {import("../../charts/chart-frame.js").Idle[]} */
  idle = [];
  /** Of the range that is shown. @type {Lanes | null} */
  lanes = null;
  /** Of all the time, as it was last fetched. @type {Lanes | null} */
  overview = null;
  /** Steps with digests, ascending. @type {DigestedStep[]} */
  digests = [];
  /** The latest, which may compute steps of earlier ones again. */
  attempt = 0;

  /**
   * @param {string} jobId @param {() => number} points how many are requested of each lane
   * @param {() => import("./rank-measures.js").MeasureName[]} measures that are requested of each rank @param {() => void} onChange
   */
  constructor(jobId, points, measures, onChange) {
    this.#jobId = jobId;
    this.#points = points;
    this.#measures = measures;
    this.#onChange = onChange;
    this.#fetch = latestWins(() => this.#read(), (answer) => this.#show(answer));
    every(REFRESH_SECONDS, () => this.isLive && void this.refresh());
  }

  /** Of the server's clock, in seconds since 1970. */
  get now() {
    return Date.now() / 1000 + this.#ahead;
  }

  /** Fetch the range that is shown; an unreachable server leaves everything as it is. */
  async refresh() {
    await this.#fetch().catch(warn("the time axis"));
  }

  /** @returns {Promise<[TimeBreakdown, Lanes, DigestedStep[]]>} */
  async #read() {
    const { from, to } = getView();
    const range = from !== null && to !== null ? { from, to } : {};
    const wanted = { job_id: this.#jobId, ...range, points: this.#points(), measure: this.#measures() };
    const known = this.digests.slice(0, this.digests.findLastIndex(({ attempt }) => attempt === this.attempt) + 1);
    return Promise.all([
      call("GET /jobs/{job_id}/time", { job_id: this.#jobId }),
      call("GET /jobs/{job_id}/lanes", wanted),
      readDigests(this.#jobId, known),
    ]);
  }

  /** @param {[TimeBreakdown, Lanes, DigestedStep[]]} answer */
  #show([time, lanes, digests]) {
    this.digests = digests;
    this.time = time;
    this.idle = idleOf(time);
    this.lanes = lanes;
    if (getView().from === null || !this.overview) this.overview = lanes;
    const end = Math.max(0, ...time.intervals.slice(-1).map(({ started_at: started, seconds }) => (secondsOf(started) ?? 0) + seconds));
    if (this.isLive && end) this.#ahead = end - Date.now() / 1000;
    this.#onChange();
  }
}
