/**
 * What a job was submitted with and what it ran with, as labels and values: for its page and for comparisons. Pure.
 *
 * @import { ConfigurationPublic as Configuration, JobPublic as Job } from "./api-types.d.ts"
 * @import { JobOption } from "./code-snippets.js"
 * @typedef {[label: string, values: string[]]} Entry
 * @typedef {{name: string, values: string[], differs: boolean}} Line one value for each job, "" where it has none
 */
import { bytes, count, counted, localTime } from "./format.js";
import { JOB_OPTIONS, valueAt } from "./code-snippets.js";

/** Steps between the snapshots of a replay, as `jobs/replay.py` sets them. */
const NEVER = 2 ** 53;
const SHORT_DIGEST = 12;
const PACKAGE = "package ";
/** They differ between any two jobs, or are compared item by item. */
const NOT_COMPARED = new Set(["Arguments", "Environment", "Submitted", "Job", "Slots", "Slurm job", "Working directory", "Code digest"]);

/** @param {Job} job @returns {Entry[]} */
export function submittedEntries(job) {
  const { min, max } = job.ranks;
  const { git, commit, ref, path, bundle } = job.code;
  /** @type {Entry[]} */
  const entries = [
    [job.target.kind.charAt(0).toUpperCase() + job.target.kind.slice(1), [job.target.value]],
    ["Arguments", job.args],
    ["Environment", Object.keys(job.env).map((name) => `${name}=•••`)],
    ["Code", git ? [`${git} at ${commit ?? ref ?? "HEAD"}`] : [path ?? bundle ?? "", revisionText(job)].filter(Boolean)],
    ["Slots", job.devices],
    ["Ranks", [min === max ? String(max) : `${min} to ${max}`]],
    ["Slurm", slurmOptions(job)],
    ["Slurm job", job.slurm?.job_id ? [String(job.slurm.job_id), ...(job.slurm.hosts ?? [])] : []],
    ["Snapshots", snapshotPolicy(job.snapshot)],
    ...JOB_OPTIONS.filter(({ path: at }) => !NAMED.test(at)).map((option) => /** @type {Entry} */ ([option.label, shown(job, option)])),
    ["Warnings", job.warnings],
    ["Submitted", [localTime(job.created_at)]],
    ["Job", [job.id]],
  ];
  return entries.filter(([label, values]) => values.length || label === "Arguments" || label === "Environment");
}

/** "commit 3f2a1c9d0b with uncommitted changes"; empty where it is not recorded. @param {Job} job */
export const revisionText = ({ code: { commit, dirty } }) => (commit ? `commit ${commit.slice(0, SHORT_DIGEST)}${dirty ? " with uncommitted changes" : ""}` : "");

/** Options that the list shows in another form, or that people see at the job's name. */
const NAMED = /^(args|env|ranks|nodes|name|hold|slurm.*|snapshot\..*)$/;
/** Options that people look for, also where they have their default. */
const ALWAYS = new Set(["python", "device", "launch", "priority", "max_failures"]);

/** What a job has for an option; empty for its default. @param {Job} job @param {JobOption} option @returns {string[]} */
function shown(job, { path, default: usual, unit }) {
  const value = valueAt(job, path);
  if (Array.isArray(value)) return value;
  if (value === usual && !ALWAYS.has(path)) return [];
  return [typeof value === "boolean" ? (value ? "yes" : "no") : `${value} ${unit}`.trim()];
}

/** @param {Job} job */
function slurmOptions({ nodes: { min, max }, slurm }) {
  if (!slurm) return [];
  const { partition, account, qos, time, constraint, mem, gres, gpus_per_node, prologue = [], extra = [] } = slurm;
  const named = Object.entries({ partition, account, qos, time, constraint, mem, gres, "GPUs per node": gpus_per_node }).filter(([, value]) => value);
  return [min === max ? counted(max, "node") : `${min} to ${max} nodes`, ...named.map(([name, value]) => `${name} ${value}`), ...extra, ...prologue];
}

/** @param {Job["snapshot"]} policy */
function snapshotPolicy({ every_steps: steps, every_seconds: seconds, every_epochs: epochs, keep, auto, monitor }) {
  const every = [steps && (steps < NEVER ? `every ${steps} steps` : "never"), seconds && `every ${seconds} s`, epochs && `every ${epochs} epochs`, auto && "automatic interval"];
  const due = every.filter((rule) => typeof rule === "string");
  return [...(due.length ? due : ["when the script requests one"]), `keep ${keep}`, ...(monitor ? [`keep the best by ${monitor}`] : [])];
}

/**
 * What the server has recorded of code, machine and software.
 *
 * @param {Configuration} configuration @returns {Entry[]}
 */
export function recordedEntries({ directory, code, environment: found }) {
  /** @type {Entry[]} */
  const entries = [["Working directory", [directory]]];
  if (code) entries.push(["Code digest", [code.digest, `${counted(code.files, "file")}, ${bytes(code.bytes)}`]]);
  if (!found) return [...entries, ["Machine", []]];
  const { host, processor, cores, memory, system, python, packages = {} } = found;
  return [
    ...entries,
    ["Machine", [host, processor, `${cores} cores`, bytes(memory), system]],
    ["Software", [`Python ${python}`, ...(packages.torch ? [`torch ${packages.torch}`] : [])]],
  ];
}

/**
 * Options with their values: `--lr 0.1` and `--lr=0.1` are the same, a flag is "yes", a repeated one has all values.
 *
 * @param {string[]} args @returns {Map<string, string>}
 */
export function parseArguments(args) {
  /** @type {Map<string, string>} */
  const found = new Map();
  const add = (/** @type {string} */ name, /** @type {string} */ value) => found.set(name, found.has(name) ? `${found.get(name)} ${value}` : value);
  let position = 0;
  for (let at = 0; at < args.length; at += 1) {
    const [, name, inline] = /^(--?[A-Za-z][^=\s]*)(?:=(.*))?$/s.exec(args[at]) ?? [];
    if (name === undefined) add(`argument ${(position += 1)}`, args[at]);
    else if (inline !== undefined) add(name, inline);
    else if (at + 1 < args.length && !/^--?[A-Za-z]/.test(args[at + 1])) add(name, args[(at += 1)]);
    else add(name, "yes");
  }
  return found;
}

/**
 * Everything to compare of one job.
 *
 * @param {Job} job @param {Configuration} configuration @returns {Map<string, string>}
 */
export function parametersOf(job, configuration) {
  const entries = [...submittedEntries(job), ...recordedEntries(configuration)].filter(([label]) => !NOT_COMPARED.has(label));
  const packages = Object.entries(configuration.environment?.packages ?? {});
  return new Map([
    ...parseArguments(job.args),
    ...Object.keys(job.env).map((name) => /** @type {const} */ ([`variable ${name}`, "set, its value is secret"])),
    ...entries.map(([label, values]) => /** @type {const} */ ([label, values.join(", ")])),
    ["Code digest", configuration.code?.digest.replace(/^sha256:/, "").slice(0, SHORT_DIGEST) ?? ""],
    ["World size", job.world_size === null ? "" : count(job.world_size)],
    ...packages.map(([name, version]) => /** @type {const} */ ([PACKAGE + name, String(version)])),
  ]);
}

/**
 * A line for each parameter that any of the jobs has. Packages only where those of all jobs are recorded: a job that has
 * not run yet has none.
 *
 * @param {Map<string, string>[]} columns @returns {Line[]}
 */
export function compareParameters(columns) {
  const packagesKnown = columns.every((column) => [...column.keys()].some((name) => name.startsWith(PACKAGE)));
  const names = new Set(columns.flatMap((column) => [...column.keys()]));
  return [...names]
    .filter((name) => packagesKnown || !name.startsWith(PACKAGE))
    .map((name) => {
      const values = columns.map((column) => column.get(name) ?? "");
      return { name, values, differs: values.some((value) => value !== values[0]) };
    })
    .filter(({ values }) => values.some(Boolean));
}
