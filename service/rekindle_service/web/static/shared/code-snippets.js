/**
 * A submit request in the words of other tools: the command line, curl and Python.
 *
 * @import { JobPublic as Job } from "./api-types.d.ts"
 * @typedef {{path: string, label: string, widget: string, flag: string, default: unknown, onlyOurs: boolean, needsCode: boolean, unit: string}} JobOption
 * @typedef {Record<string, any>} Body of `POST /api/v1/jobs`; a form may hold values that the server will reject
 */
import { join, quote } from "./shell-words.js";

/** The options of a job, as the page contains them. @type {JobOption[]} */
export const JOB_OPTIONS = JSON.parse(document.getElementById("job-options")?.textContent ?? "[]");

const LINE = 88; // characters, about
const BREAK = " \\\n  ";
/** The API never returns the values of environment variables. */
const HIDDEN = "•••";

/** The request that submits the same job; defaults are omitted. @param {Job} job @returns {Body} */
export function requestOf(job) {
  const { git, ref, commit, path, bundle } = job.code;
  const body = compact({
    [job.target.kind]: job.target.value,
    code: git ? compact({ git, ref: commit ?? ref }) : path ? { path } : bundle ? { bundle } : null,
    slurm: job.slurm && {},
  });
  for (const option of JOB_OPTIONS) {
    const value = requested(valueAt(job, option.path), option);
    if (value !== undefined && option.path !== "slurm" && JSON.stringify(value) !== JSON.stringify(option.default)) setAt(body, option.path, value);
  }
  return body;
}

/** What a request has where a job has `value`. @param {any} value @param {JobOption} option */
function requested(value, { widget }) {
  if (widget === "range") return value.min === value.max ? value.max : value;
  return widget === "variables" ? Object.fromEntries(Object.keys(value).map((name) => [name, HIDDEN])) : value;
}

/** @param {any} fields of a job or a request @param {string} path */
export const valueAt = (fields, path) => path.split(".").reduce((found, name) => found?.[name], fields);

/** @param {Body} body @param {string} path @param {unknown} value */
export function setAt(body, path, value) {
  const [outer, inner] = path.split(".");
  body[outer] = inner === undefined ? value : { ...body[outer], [inner]: value };
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
  const needsGuard = (/** @type {string} */ arg) => (script === undefined ? arg.startsWith("-") : arg === "--" || isOwnOption(arg));
  const guard = args.some(needsGuard) ? ["--"] : [];
  const words = [...optionsOf(body), target, ...(guard.length || args.length ? [[...guard, ...args]] : [])];
  const missing = code.bundle === undefined ? "" : "The command line cannot name a bundle: pass the directory that you packed with --code.";
  return { command: wrap(["rekindle submit", ...words.map(join)]), missing };
}

/** Whether `rekindle submit` refuses a word after a script. @param {string} word */
function isOwnOption(word) {
  const name = word.split("=", 1)[0];
  return /^--(follow|nproc[_-]per[_-]node)$/.test(name) || JOB_OPTIONS.some(({ flag, onlyOurs }) => onlyOurs && flag === name);
}

/** @param {Body} body @returns {string[][]} each option with its value */
function optionsOf(body) {
  const { code = {} } = body;
  const source = Object.entries({ "--code": code.path, "--git": code.git, "--ref": code.ref, "--array": body.array, "--parallel": body.parallel });
  const given = source.filter(([, value]) => value !== undefined).map(([flag, value]) => [flag, String(value)]);
  return [...given, ...JOB_OPTIONS.filter(({ path }) => path !== "args").flatMap((option) => wordsOf(valueAt(body, option.path), option))];
}

/** An option on a command line; empty where it is not given. @param {any} value @param {JobOption} option @returns {string[][]} */
function wordsOf(value, { path, widget, flag, default: usual }) {
  if (value === undefined || value === usual) return [];
  const [yes, no] = flag.split("/");
  if (path === "slurm") return Object.keys(value).length ? [] : [[flag]];
  if (widget === "tick") return [[value ? yes : no]];
  if (widget === "lines" || widget === "jobs") return value.map((/** @type {string} */ each) => [flag, each]);
  if (widget === "variables") return Object.entries(value).map(([name, each]) => [flag, `${name}=${each}`]);
  if (widget === "range" && typeof value === "object") return [[flag, `${value.min}:${value.max}`]];
  return [[flag, widget === "words" ? join(value) : String(value)]];
}

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
