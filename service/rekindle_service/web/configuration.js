/** What was submitted, the code, packages and machine that it runs with, and the same request for other tools. */
import { copyText } from "./clipboard.js";
import { byId, h, setText } from "./dom.js";
import { NONE, bytes, count, localTime } from "./format.js";
import { asPython, requestOf } from "./job-request.js";
import { asCommand, asCurl } from "./request-as.js";

/** @typedef {[label: string, values: string[]]} Entry */

export class Configuration {
  #shown = "";
  /** @type {import("./api.js").Job | null} */
  #job = null;

  constructor() {
    const copies = { "copy-command": () => this.#command(), "copy-curl": () => this.#curl(), "copy-python": () => asPython(this.#request()) };
    for (const [id, text] of Object.entries(copies)) byId(id).addEventListener("click", () => void copyText(text()));
  }

  /** @param {import("./api.js").Job} job told often, but rarely with another configuration */
  show(job) {
    this.#job = job;
    const entries = entriesOf(job);
    const told = JSON.stringify(entries);
    if (told === this.#shown) return;
    this.#shown = told;
    list(byId("configuration"), entries);
  }

  /** What the server has on record about the code and the latest run. @param {import("./job-api.js").ConfigurationFacts} facts */
  showFacts(facts) {
    list(byId("surroundings"), factsOf(facts));
    const packages = Object.entries(facts.surroundings?.packages ?? {});
    byId("packages").hidden = packages.length === 0;
    setText(byId("packages-summary"), `${count(packages.length)} packages`);
    byId("packages-list").replaceChildren(...packages.map(([name, version]) => h("li", {}, h("bdi", {}, name), " ", h("code", {}, version))));
  }

  #request() {
    if (!this.#job) throw new Error("no job is shown yet");
    return requestOf(this.#job);
  }

  #command() {
    const { command, lacking } = asCommand(this.#request());
    return lacking.length ? `${command}\n# not in this command: ${lacking.join("; ")}` : command;
  }

  #curl() {
    return asCurl(this.#request(), location.origin);
  }
}

/**
 * @param {HTMLElement} node a description list
 * @param {Entry[]} entries
 */
function list(node, entries) {
  node.replaceChildren(...entries.flatMap(([label, values]) => [h("dt", {}, label), h("dd", {}, ...codes(values))]));
}

/**
 * @param {import("./api.js").Job} job
 * @returns {Entry[]}
 */
export function entriesOf(job) {
  const { min, max } = job.ranks;
  /** @type {Entry[]} */
  const entries = [
    [job.target.kind.charAt(0).toUpperCase() + job.target.kind.slice(1), [job.target.value]],
    ["Arguments", job.args],
    ["Environment", Object.keys(job.env).map((name) => `${name}=•••`)],
    ["Code", Object.entries(job.code).map(([kind, value]) => `${kind}: ${value}`)],
    ["Python", [job.python]],
    ["Device", [job.device, ...job.devices]],
    ["Ranks", [min === max ? String(max) : `${min} to ${max}`]],
    ["Priority", [String(job.priority)]],
    ["Failures in a row", [`at most ${job.max_failures}`]],
    ["Hang timeout", job.hang_timeout === null ? [] : [`${job.hang_timeout} s`]],
    ["Time limit", job.time_limit === null ? [] : [`${job.time_limit} s`]],
    ["Snapshots", snapshotRules(job.snapshot)],
    ["Start", [job.warm ? "warm" : "cold"]],
    ["After", job.after],
    ["Submitted", [localTime(job.created_at)]],
    ["Job", [job.id]],
  ];
  return entries.filter(([label, values]) => values.length || label === "Arguments" || label === "Environment");
}

/** @param {import("./api.js").Job["snapshot"]} rules */
function snapshotRules({ every_steps: steps, every_seconds: seconds, every_epochs: epochs, keep, auto, best }) {
  const when = [steps && `every ${steps} steps`, seconds && `every ${seconds} s`, epochs && `every ${epochs} epochs`, auto && "auto"];
  return [...when, `keep ${keep}`, best && `best by ${best}`].filter((rule) => typeof rule === "string");
}

/**
 * @param {import("./job-api.js").ConfigurationFacts} facts
 * @returns {Entry[]}
 */
export function factsOf({ folder, code, surroundings: found }) {
  /** @type {Entry[]} */
  const entries = [["Working folder", [folder]]];
  if (code) entries.push(["Code digest", [code.digest, `${count(code.files)} ${code.files === 1 ? "file" : "files"}, ${bytes(code.bytes)}`]]);
  if (!found) return [...entries, ["Machine", []]];
  const { host, processor, cores, memory, system, python, packages = {} } = found;
  return [
    ...entries,
    ["Machine", [host, processor, `${cores} cores`, bytes(memory), system]],
    ["Interpreter", [`Python ${python}`, ...(packages.torch ? [`torch ${packages.torch}`] : [])]],
  ];
}

/** @param {string[]} values */
function codes(values) {
  return values.length ? values.map((value) => h("code", {}, value)) : [NONE];
}
