/** A progress bar; one without a known end shows how far it is in words alone. */
import { h } from "./dom.js";

/** @param {string} label */
export function progressBar(label) {
  return h("div", { class: "bar", role: "progressbar", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100 }, h("span"));
}

/**
 * @param {HTMLElement} bar
 * @param {import("./api.js").Job} job
 * @param {string} words
 */
export function setProgress(bar, job, words) {
  const fraction = job.state === "succeeded" ? 1 : job.progress;
  bar.dataset.state = job.state;
  bar.setAttribute("aria-valuetext", words);
  if (fraction === null || fraction === undefined) bar.removeAttribute("aria-valuenow");
  else bar.setAttribute("aria-valuenow", String(Math.round(fraction * 100)));
  const fill = /** @type {HTMLElement} */ (bar.firstElementChild);
  fill.style.width = `${Math.min(1, Math.max(0, fraction ?? 0)) * 100}%`;
}
