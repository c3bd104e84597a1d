/** The state of a job or a rank as a coloured word; the glyph beside it says the same without colour. */
import { h, setText } from "./dom.js";

/** @param {string} state */
export function badge(state) {
  return h("span", { class: "badge", "data-state": state }, state);
}

/**
 * @param {HTMLElement} node
 * @param {string} state
 */
export function setBadge(node, state) {
  node.dataset.state = state;
  setText(node, state);
}

/**
 * A job's state in the words of its owner's wish: a queued job that was put on hold waits for nobody but them.
 *
 * @param {import("./api.js").Job} job
 */
export function stateWord(job) {
  return job.state === "queued" && job.intent === "hold" ? "held" : job.state;
}
