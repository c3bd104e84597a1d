/** What a job was given, as names and values, so that two jobs can be laid beside each other. Pure. */

/**
 * @typedef {import("./api.js").Job} Job
 * @typedef {import("./job-api.js").ConfigurationFacts} Facts
 * @typedef {{name: string, values: string[], differs: boolean}} Line one value for each job, "" where it has none
 */

const SHORT_DIGEST = 12;

/**
 * Options with their values: `--lr 0.1` and `--lr=0.1` are the same, a flag is "yes", a repeated one has all values.
 *
 * @param {string[]} args
 * @returns {Map<string, string>}
 */
export function argumentsOf(args) {
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
 * @param {Job} job
 * @param {Facts | null} facts what the server has on record about code, packages and machine
 * @returns {Map<string, string>}
 */
export function parametersOf(job, facts) {
  const { code, surroundings } = facts ?? { code: null, surroundings: null };
  const entries = Object.entries({
    run: `${job.target.kind} ${job.target.value}`,
    ...Object.fromEntries(argumentsOf(job.args)),
    ...Object.fromEntries(Object.keys(job.env).map((name) => [`variable ${name}`, "set, its value is secret"])),
    code: code?.digest.replace(/^sha256:/, "").slice(0, SHORT_DIGEST),
    "code from": job.code.git ? `${job.code.git} at ${job.code.commit ?? job.code.ref ?? "its head"}` : (job.code.path ?? job.code.bundle),
    "ranks asked for": job.ranks.min === job.ranks.max ? job.ranks.max : `${job.ranks.min} to ${job.ranks.max}`,
    "ranks it ran with": job.world_size,
    device: job.device,
    snapshots: cadence(job.snapshot),
    "failures in a row": job.max_failures,
    "hang timeout": job.hang_timeout && `${job.hang_timeout} s`,
    "time limit": job.time_limit && `${job.time_limit} s`,
    "interpreter kept warm": job.warm ? "yes" : "no",
    interpreter: job.python,
    python: surroundings?.python,
    host: surroundings?.host,
    processor: surroundings?.processor,
    cores: surroundings?.cores,
    ...Object.fromEntries(Object.entries(surroundings?.packages ?? {}).map(([name, version]) => [`package ${name}`, version])),
  });
  return new Map(entries.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => [name, String(value)]));
}

/** @param {Job["snapshot"]} snapshot */
function cadence({ every_steps: steps, every_seconds: seconds, every_epochs: epochs, keep, auto, best }) {
  const every = [steps && `${steps} steps`, seconds && `${seconds} s`, epochs && `${epochs} epochs`].filter(Boolean);
  const when = auto ? "as often as it pays" : every.length ? `every ${every.join(" or ")}` : "as the script says";
  return `${when}, ${keep} kept${best ? `, the best by ${best} too` : ""}`;
}

/**
 * A line for each name that any of them has, in the order in which they come up.
 *
 * @param {Map<string, string>[]} columns
 * @returns {Line[]}
 */
export function sideBySide(columns) {
  const names = [...new Set(columns.flatMap((column) => [...column.keys()]))];
  return names.map((name) => {
    const values = columns.map((column) => column.get(name) ?? "");
    return { name, values, differs: values.some((value) => value !== values[0]) };
  });
}
