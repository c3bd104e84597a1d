/**
 * The state of a job or a rank as a coloured word with a glyph of the same meaning; and progress bars.
 *
 * @import { JobPublic as Job } from "./api-types.d.ts"
 */
import { h, setText } from "./dom.js";

const ENDED = new Set(["succeeded", "failed", "cancelled"]);

/** @param {{state: string}} job */
export const hasEnded = (job) => ENDED.has(job.state);

/** @param {{state: string, intent: string}} job */
export const isHeld = (job) => job.state === "queued" && job.intent === "hold";

/**
 * The state as it is displayed: a queued job on hold is "held", a running one without progress "stalled".
 *
 * @param {{state: string, intent: string, stalled?: object | null}} job
 */
export const stateWord = (job) => (isHeld(job) ? "held" : job.stalled ? "stalled" : job.state);

/** @param {string} state */
export const badge = (state) => h("span", { class: "badge", "data-state": state }, state);

/** @param {HTMLElement} node @param {string} state */
export function setBadge(node, state) {
  node.dataset.state = state;
  setText(node, state);
}

/** @param {string} label */
export function progressBar(label) {
  return h("div", { class: "bar", role: "progressbar", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100 }, h("span"));
}

/**
 * A job whose length is unknown has text and an empty bar.
 *
 * @param {HTMLElement} bar @param {Job} job @param {string} text
 */
export function setProgress(bar, job, text) {
  const fraction = job.state === "succeeded" ? 1 : job.progress;
  bar.dataset.state = job.state;
  bar.setAttribute("aria-valuetext", text);
  if (fraction === null) bar.removeAttribute("aria-valuenow");
  else bar.setAttribute("aria-valuenow", String(Math.round(fraction * 100)));
  setFill(/** @type {HTMLElement} */ (bar.firstElementChild), fraction);
}

/** @param {HTMLElement} fill the coloured part of a bar @param {number | null} fraction 0 to 1 */
export function setFill(fill, fraction) {
  fill.style.width = `${Math.min(1, Math.max(0, fraction ?? 0)) * 100}%`;
}
