/** What was submitted: target, arguments, environment names, interpreter. */
import { h } from "./dom.js";
import { NONE, localTime } from "./format.js";

/** @typedef {[label: string, values: string[]]} Entry */

export class Configuration {
  #list;
  #shown = "";

  /** @param {HTMLElement} list a description list */
  constructor(list) {
    this.#list = list;
  }

  /** @param {import("./api.js").Job} job told often, but rarely with another configuration */
  show(job) {
    const entries = entriesOf(job);
    const told = JSON.stringify(entries);
    if (told === this.#shown) return;
    this.#shown = told;
    this.#list.replaceChildren(...entries.flatMap(([label, values]) => [h("dt", {}, label), h("dd", {}, ...codes(values))]));
  }
}

/**
 * @param {import("./api.js").Job} job
 * @returns {Entry[]}
 */
function entriesOf(job) {
  const { min, max } = job.ranks;
  /** @type {Entry[]} */
  const entries = [
    [job.target.kind.charAt(0).toUpperCase() + job.target.kind.slice(1), [job.target.value]],
    ["Arguments", job.args],
    ["Environment", Object.keys(job.env)],
    ["Python", [job.python]],
    ["Device", [job.device, ...job.devices]],
    ["Ranks", [min === max ? String(max) : `${min} to ${max}`]],
    ["Priority", [String(job.priority)]],
    ["Failures in a row", [`at most ${job.max_failures}`]],
    ["After", job.after],
    ["Submitted", [localTime(job.created_at)]],
    ["Job", [job.id]],
  ];
  return entries.filter(([label, values]) => values.length || label !== "After");
}

/** @param {string[]} values */
function codes(values) {
  return values.length ? values.map((value) => h("code", {}, value)) : [NONE];
}
