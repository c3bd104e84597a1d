/** The request that a job was submitted with, as far as its JSON tells it; and as a Python program. Pure. */

/** The values of environment variables are never told. */
const HIDDEN = "•••";

/**
 * Body of `POST /api/v1/jobs` that asks for the same; what has its default is left out.
 *
 * @param {any} job
 * @returns {import("./request-as.js").Body}
 */
export function requestOf(job) {
  const { min, max } = job.ranks;
  const names = Object.keys(job.env);
  return given({
    name: job.name,
    [job.target.kind]: job.target.value,
    args: job.args.length ? job.args : null,
    code: codeOf(job.code),
    env: names.length ? Object.fromEntries(names.map((name) => [name, HIDDEN])) : null,
    python: job.python,
    ranks: min === max ? max : { min, max },
    device: job.device,
    priority: job.priority || null,
    after: job.after.length ? job.after : null,
    max_failures: job.max_failures === 3 ? null : job.max_failures,
    hang_timeout: job.hang_timeout,
    time_limit: job.time_limit,
    snapshot: cadenceOf(job.snapshot),
    warm: job.warm ? null : false,
  });
}

/** @param {Record<string, string>} code */
function codeOf({ path, bundle, git, ref, commit }) {
  if (git !== undefined) return given({ git, ref: commit ?? ref });
  return path !== undefined ? { path } : bundle !== undefined ? { bundle } : null;
}

/** @param {Record<string, any>} cadence */
function cadenceOf({ keep, auto, ...rest }) {
  const wanted = given({ ...rest, keep: keep === 3 ? null : keep, auto: auto || null });
  return Object.keys(wanted).length ? wanted : null;
}

/**
 * @param {Record<string, any>} fields
 * @returns {Record<string, any>}
 */
const given = (fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined));

/**
 * A program that submits the same.
 *
 * @param {import("./request-as.js").Body} body
 */
export function asPython(body) {
  return [
    "from rekindle_service.client import Client",
    "",
    "with Client.from_home() as client:",
    `    job = client.submit(${literal(body, "    ")})`,
    '    print(job["id"])',
    "",
  ].join("\n");
}

/**
 * @param {unknown} value out of JSON
 * @param {string} indent
 * @returns {string} as Python writes it
 */
function literal(value, indent) {
  const inner = `${indent}    `;
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map((item) => literal(item, inner)).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  const items = Object.entries(value ?? {}).map(([key, item]) => `${inner}${JSON.stringify(key)}: ${literal(item, inner)},\n`);
  return items.length ? `{\n${items.join("")}${indent}}` : "{}";
}
