/**
 * What the time of a step is spent on and what limits it: a sentence, a bar, and the same as a table; fetched again as
 * long as the job runs.
 *
 * @import { StepTimes } from "../shared/api-types.d.ts"
 */
import { CHOSEN, colourOf } from "../charts/palette.js";
import { call, warn } from "../shared/api.js";
import { byId, h, patchChildren, setText } from "../shared/dom.js";
import { percent } from "../shared/format.js";
import { every, latestWins } from "../shared/timing.js";

const REFRESH_SECONDS = 5;
/** In the order of a step. */
const PHASES = /** @type {const} */ (["data", "copy", "forward", "backward", "communication", "optimizer", "saving", "other"]);

export class StepTimesStrip {
  #fetch;
  isLive = false;

  /** @param {string} jobId */
  constructor(jobId) {
    this.#fetch = latestWins(() => call("GET /jobs/{job_id}/step-times", { job_id: jobId }), draw);
    every(REFRESH_SECONDS, () => this.isLive && void this.refresh());
  }

  async refresh() {
    await this.#fetch().catch(warn("what steps are spent on"));
  }
}

/** @param {StepTimes} times */
function draw({ attempt, summary, rank, ranks, seconds, step_seconds: step }) {
  byId("step-times").hidden = attempt === null;
  byId("step-bar").hidden = !step;
  setText(byId("step-summary"), summary);
  setText(byId("step-whole"), step ? `${milliseconds(step)}${ranks.length > 1 ? ` on rank ${rank}, the slowest` : ""}` : "");
  const parts = PHASES.flatMap((phase, index) => {
    if (!step || !seconds[phase]) return [];
    const title = ranks.map((each) => `rank ${each.rank}: ${milliseconds(each.seconds[phase])}`).join("\n");
    const cells = [milliseconds(seconds[phase]), percent(seconds[phase] / step)].map((text) => h("td", { role: "cell" }, text));
    const [bar, row] = [h("span"), h("tr", { role: "row", title }, h("th", { role: "rowheader", scope: "row" }, phase), ...cells)];
    for (const node of [bar, row]) node.style.setProperty("--tone", colourOf(index, CHOSEN));
    bar.style.flexGrow = String(seconds[phase] / step);
    return [{ bar, row }];
  });
  patchChildren(byId("step-bar"), parts.map(({ bar }) => bar));
  patchChildren(byId("step-parts"), parts.map(({ row }) => row));
}

/** @param {number} seconds */
const milliseconds = (seconds) => `${Number((seconds * 1000).toPrecision(3))} ms`;
