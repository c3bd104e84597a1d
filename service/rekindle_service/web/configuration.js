/** What was submitted: target, arguments, environment names, interpreter. */
import { h } from "./dom.js";
import { NONE, localTime } from "./format.js";

/**
 * @param {HTMLElement} list a description list
 * @param {import("./api.js").Job} job
 */
export function showConfiguration(list, job) {
  list.replaceChildren(
    ...entry(capital(job.target.kind), job.target.value),
    ...entry("Arguments", ...job.args),
    ...entry("Environment", ...Object.keys(job.env)),
    ...entry("Python", job.python),
    ...entry("Device", job.device, ...job.devices),
    ...entry("Ranks", job.ranks.min === job.ranks.max ? String(job.ranks.max) : `${job.ranks.min} to ${job.ranks.max}`),
    ...entry("Priority", String(job.priority)),
    ...entry("Failures in a row", `at most ${job.max_failures}`),
    ...(job.after.length ? entry("After", ...job.after) : []),
    ...entry("Submitted", localTime(job.created_at)),
    ...entry("Job", job.id),
  );
}

/** @param {string} word */
const capital = (word) => word.charAt(0).toUpperCase() + word.slice(1);

/**
 * @param {string} label
 * @param {...string} values
 */
function entry(label, ...values) {
  const shown = values.length ? values.map((value) => h("code", {}, value)) : [NONE];
  return [h("dt", {}, label), h("dd", {}, ...shown)];
}
