/**
 * A submit request in the words of other tools: the command line, curl and Python. Pure.
 *
 * @import { JobPublic as Job } from "./api-types.d.ts"
 * @typedef {Record<string, any>} Body of `POST /api/v1/jobs`; a form may hold values that the server will reject
 */
import { JOB_OPTIONS } from "./job-options.js";
import { join, quote } from "./shell-words.js";

const LINE = 88; // characters, about
const BREAK = " \\\n  ";
/** The API never returns the values of environment variables. */
const HIDDEN = "•••";

/** The request that submits the same job; defaults are omitted. @param {Job} job @returns {Body} */
export function requestOf(job) {
  const { min, max } = job.ranks;
  const { git, ref, commit, path, bundle } = job.code;
  const { keep, auto, ...rules } = job.snapshot;
  const names = Object.keys(job.env);
  const snapshot = compact({ ...rules, keep: keep === 3 ? null : keep, auto: auto || null });
  return compact({
    name: job.name,
    [job.target.kind]: job.target.value,
    args: [],
    code: git ? compact({ git, ref: commit ?? ref }) : path ? { path } : bundle ? { bundle } : null,
    python: job.python,
    ranks: min === max ? max : { min, max },
    ...slurmRequest(job),
    ...changedOptions(job),
    env: names.length ? Object.fromEntries(names.map((name) => [name, HIDDEN])) : null,
    snapshot: Object.keys(snapshot).length ? snapshot : null,
  });
}

/** Several nodes alone are a request for Slurm. @param {Job} job */
function slurmRequest({ nodes: { min, max }, slurm }) {
  if (slurm === null) return {};
  const { job_id, state, reason, hosts, ...given } = slurm;
  const options = compact({ ...given, prologue: given.prologue?.length ? given.prologue : null, extra: given.extra?.length ? given.extra : null });
  const nodes = min === max ? max : { min, max };
  return { nodes: max === 1 ? null : nodes, slurm: max > 1 && !Object.keys(options).length ? null : options };
}

/** Null for an option that has its default. @param {Job} job */
function changedOptions(job) {
  const same = (/** @type {unknown} */ one, /** @type {unknown} */ other) => JSON.stringify(one) === JSON.stringify(other);
  return Object.fromEntries(
    /** @type {(keyof typeof JOB_OPTIONS)[]} */ (Object.keys(JOB_OPTIONS)).map((name) => [name, same(job[name], JOB_OPTIONS[name]) ? null : job[name]]),
  );
}

/** @param {Body} fields */
const compact = (fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined));

/**
 * The request of a form: an array or a matrix is a request for an experiment, whose jobs have the other fields in common.
 *
 * @param {Body} body @returns {{path: "jobs" | "experiments", body: Body}}
 */
export function asRequest(body) {
  if (body.array === undefined && body.matrix === undefined) return { path: "jobs", body };
  const { name, title, array, matrix, measure, repeats, seed_option, parallel, sequential, ...base } = body;
  return { path: "experiments", body: compact({ name, title, array, matrix, measure, repeats, seed_option, parallel, sequential, base }) };
}

/**
 * The command that submits the same job; `missing` names what the command line has no option for.
 *
 * @param {Body} body @returns {{command: string, missing: string}}
 */
export function asCommand(body) {
  if (body.matrix !== undefined) {
    return { command: "rekindle experiment --file experiment.json --follow", missing: "experiment.json contains what the curl command sends after -d." };
  }
  const { args = [], script, module, recipe, code = {} } = body;
  const target = script !== undefined ? [script] : module !== undefined ? ["--module", module] : ["--recipe", recipe ?? ""];
  const needsGuard = (/** @type {string} */ arg) => (script === undefined ? arg.startsWith("-") : arg === "--" || OWN_OPTION.test(arg));
  const guard = args.some(needsGuard) ? ["--"] : [];
  const words = [...optionsOf(body), target, ...(guard.length || args.length ? [[...guard, ...args]] : [])];
  const missing = code.bundle === undefined ? "" : "The command line cannot name a bundle: pass the directory that you packed with --code.";
  return { command: wrap(["rekindle submit", ...words.map(join)]), missing };
}

/** Options of `rekindle submit` that it refuses after a script. */
const OWN_OPTION = /^--(ranks|follow|hold|after|after-any|max-failures|hang-timeout|on-restart|devices-per-rank|gpu-share|nproc[_-]per[_-]node)(=|$)/;

/** Fields of a request that have no option of their own name. */
const OTHER_FIELDS = new Set([
  ...["args", "script", "module", "recipe", "code", "env", "after", "ranks", "snapshot", "auto", "warm"],
  ...["after_any", "hold", "resizable", "on_restart", "continue_from", "exclude", "gitignore", "keep_links", "watch", "nodes", "slurm"],
]);

/** @param {number | {min: number, max: number} | undefined} range */
const rangeText = (range) => (typeof range === "object" ? `${range.min}:${range.max}` : range);

/** @param {Body} body @returns {string[][]} each option with its value */
function optionsOf(body) {
  const { name, code = {}, ranks, device, python, env = {}, after = [], exclude = [], watch = [], snapshot = {}, warm } = body;
  const fields = {
    name,
    code: code.path,
    git: code.git,
    ref: code.ref,
    ranks: rangeText(ranks),
    nodes: rangeText(body.nodes),
    partition: body.slurm?.partition,
    account: body.slurm?.account,
    qos: body.slurm?.qos,
    "slurm-time": body.slurm?.time,
    constraint: body.slurm?.constraint,
    "slurm-mem": body.slurm?.mem,
    gres: body.slurm?.gres,
    "gpus-per-node": body.slurm?.gpus_per_node,
    device,
    python,
    continue: body.continue_from,
    "on-restart": body.on_restart && join(body.on_restart),
    ...plainFields(body),
    ...plainFields(snapshot),
  };
  const options = [
    ...Object.entries(fields).map(([field, value]) => [`--${field.replaceAll("_", "-")}`, value]),
    ...Object.entries(env).map(([key, value]) => ["--env", `${key}=${value}`]),
    ...after.map((/** @type {string} */ id) => ["--after", id]),
    ...(body.after_any ?? []).map((/** @type {string} */ id) => ["--after-any", id]),
    ...watch.map((/** @type {string} */ path) => ["--watch", path]),
    ...exclude.map((/** @type {string} */ pattern) => ["--exclude", pattern]),
    ...(body.slurm?.prologue ?? []).map((/** @type {string} */ each) => ["--slurm-prologue", each]),
    ...(body.slurm?.extra ?? []).map((/** @type {string} */ each) => ["--slurm-extra", each]),
  ];
  const set = options.filter(([, value]) => value !== undefined).map(([option, value]) => [option, String(value)]);
  const flags = { "--every-auto": snapshot.auto, "--cold": warm === false, "--hold": body.hold, "--no-resize": body.resizable === false, "--gitignore": body.gitignore, "--keep-links": body.keep_links, "--slurm": body.slurm && !Object.keys(body.slurm).length };
  return [...set, ...Object.entries(flags).filter(([, on]) => on).map(([flag]) => [flag])];
}

/** The fields of `body` that are the option of the same name. @param {Body} body @returns {Body} */
const plainFields = (body) => Object.fromEntries(Object.entries(body).filter(([field]) => !OTHER_FIELDS.has(field)));

/** @param {Body} body @param {string} origin of the server, as in "http://127.0.0.1:8700" */
export function asCurl(body, origin) {
  const token = '-H "Authorization: Bearer $(rekindle token)"';
  const request = asRequest(body);
  const data = quote(JSON.stringify(request.body, null, 2));
  return [`curl ${quote(`${origin}/api/v1/${request.path}`)}`, token, "-H 'Content-Type: application/json'", `-d ${data}`].join(BREAK);
}

/** @param {string[]} parts never broken within themselves */
function wrap(parts) {
  let line = 0;
  return parts.reduce((text, part) => {
    const fits = line + part.length < LINE;
    line = fits ? line + part.length + 1 : part.length + 2;
    return text === "" ? part : text + (fits ? " " : BREAK) + part;
  }, "");
}

/** A program that submits the same job. @param {Body} body */
export function asPython(body) {
  return `from rekindle_service.client import Client

with Client.from_home() as client:
    job = client.submit(${literal(body, "    ")})
    print(job["id"])
`;
}

/** @param {unknown} value from JSON @param {string} indent @returns {string} as Python writes it */
function literal(value, indent) {
  const inner = `${indent}    `;
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map((item) => literal(item, inner)).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  const items = Object.entries(value ?? {}).map(([key, item]) => `${inner}${JSON.stringify(key)}: ${literal(item, inner)},\n`);
  return items.length ? `{\n${items.join("")}${indent}}` : "{}";
}
