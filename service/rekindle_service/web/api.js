/**
 * The service's REST interface as functions. Refusals become a Problem; an ended session leads to the sign-in page.
 *
 * @typedef {object} Outcome
 * @property {string} class
 * @property {string} message
 * @property {number | null} rank
 * @property {number | null} exit_code
 * @property {string | null} signal
 * @property {string | null} exception
 * @property {string | null} file
 * @property {number | null} line
 * @property {boolean} retryable
 *
 * @typedef {object} Job
 * @property {string} id
 * @property {number} number
 * @property {string} name
 * @property {string} state
 * @property {string | null} phase
 * @property {string} intent
 * @property {number} attempt
 * @property {number | null} world_size
 * @property {{min: number, max: number}} ranks
 * @property {string[]} devices
 * @property {string} device
 * @property {number | null} epoch
 * @property {number | null} epochs
 * @property {number | null} step
 * @property {number | null} steps
 * @property {number | null} progress
 * @property {number | null} eta_seconds
 * @property {number | null} steps_per_second
 * @property {number} restarts
 * @property {Outcome | null} outcome
 * @property {string | null} next_try_at
 * @property {number | null} queue_position
 * @property {string | null} waiting_for
 * @property {number} priority
 * @property {number} max_failures
 * @property {{kind: string, value: string}} target
 * @property {string[]} args
 * @property {Record<string, string>} env
 * @property {string[]} after
 * @property {number | null} snapshot_step
 * @property {string | null} notice
 * @property {string} created_at
 * @property {string | null} started_at
 * @property {string | null} ended_at
 * @property {number | null} goodput
 * @property {number} version
 * @property {string} python
 * @property {boolean} warm
 * @property {string | null} experiment_id
 * @property {number | null} hang_timeout seconds
 * @property {number | null} time_limit seconds
 * @property {Record<string, string>} code where it came from: path, bundle, or git with ref and commit
 * @property {{every_steps: number | null, every_seconds: number | null, every_epochs: number | null, keep: number, auto: boolean, best: string | null}} snapshot
 *
 * @typedef {object} Fault injected on request; `snapshot` is the step of the one that was damaged
 * @property {string} fault
 * @property {number | null} rank
 * @property {number | null} snapshot
 *
 * @typedef {object} Attempt
 * @property {number} number
 * @property {string} state
 * @property {string | null} started_at
 * @property {string | null} ranks_running_at
 * @property {string | null} ended_at
 * @property {Outcome | null} outcome
 * @property {number | null} resumed_from_step
 * @property {number | null} last_step
 * @property {number | null} durable_step
 * @property {number | null} world_size
 * @property {string | null} next_try_at
 * @property {string | null} reason
 * @property {Fault[]} faults
 *
 * @typedef {object} Rank
 * @property {number} rank
 * @property {string} state
 * @property {number | null} pid
 * @property {string | null} host
 * @property {string | null} device
 * @property {number | null} exit_code
 * @property {string | null} signal
 * @property {string | null} phase
 * @property {number | null} epoch
 * @property {number | null} step
 * @property {number | null} steps
 * @property {number | null} steps_per_second
 * @property {number | null} heartbeat_age seconds
 * @property {number | null} straggler share of the time that the others wait for it
 * @property {string | null} notice
 * @property {string | null} last_line
 * @property {Usage | null} [usage]
 *
 * @typedef {{index: number, utilization_percent: number | null, memory_used_bytes: number, memory_total_bytes: number}} DeviceUsage
 * @typedef {{cpu_percent: number | null, rss_bytes: number | null, devices: DeviceUsage[]}} Usage of a rank, a moment ago
 *
 * @typedef {object} Row of an experiment: one combination of parameters
 * @property {Record<string, string | number | boolean | null>} parameters
 * @property {number[]} cells
 * @property {(number | null)[]} values means of the repeats
 * @property {([number, number] | null)[]} spread their lowest and highest
 *
 * @typedef {object} Cell one job of an experiment
 * @property {string} job
 * @property {number} number
 * @property {string} state
 * @property {string} intent
 * @property {number} repeat
 *
 * @typedef {object} Summary of an experiment
 * @property {string} id
 * @property {number} number
 * @property {string} name
 * @property {string} title
 * @property {string | null} command
 * @property {string} created_at
 * @property {boolean} over
 * @property {number} jobs
 * @property {Record<string, number>} states
 *
 * @typedef {object} Table
 * @property {Record<string, any>} definition
 * @property {Record<string, any>} machine
 * @property {string[]} notes
 * @property {string[]} parameters
 * @property {string[]} measures
 * @property {Row[]} rows
 * @property {Cell[]} cells
 *
 * @typedef {Summary & Table} Experiment
 * @typedef {{job: string, name: string, points: Point[]}} Curve
 *
 * @typedef {[step: number, epoch: number | null, at: number, value: number | null]} Point
 * @typedef {{attempt: number, name: string, points: Point[]}} Series
 */

/** A refusal in the server's own words (RFC 9457). */
export class Problem extends Error {
  /**
   * @param {number} status
   * @param {{title?: string, detail?: string, errors?: {field: string, rule: string, hint?: string}[]}} body
   */
  constructor(status, body) {
    const fields = (body.errors ?? []).map((error) => `${error.field}: ${error.rule}`);
    super([body.detail ?? body.title ?? `the server answered with status ${status}`, ...fields].join(" – "));
    this.status = status;
    this.errors = body.errors ?? [];
  }
}

/** Go to the sign-in page, and from there back to this one. */
export function signIn() {
  location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}${location.hash}`);
}

/**
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body] sent as JSON, unless it is a Blob
 * @param {Record<string, string>} [headers]
 * @returns {Promise<Response>}
 */
export async function request(method, path, body, headers = {}) {
  const response = await fetch(path, {
    method,
    cache: "no-store",
    headers: body === undefined ? headers : { "Content-Type": "application/json", ...headers },
    body: body === undefined || body instanceof Blob ? body : JSON.stringify(body),
  });
  if (response.ok) return response;
  if (response.status === 401) signIn();
  throw new Problem(response.status, await response.json().catch(() => ({})));
}

/**
 * @param {string} path below /api/v1
 * @param {Record<string, string | number | boolean | null | undefined>} [query] null, undefined and "" are left out
 */
export function address(path, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") search.set(name, String(value));
  }
  return `/api/v1${path}${search.size ? `?${search}` : ""}`;
}

/**
 * @param {string} path
 * @param {Record<string, string | number | null | undefined>} [query]
 * @returns {Promise<any>}
 */
export async function get(path, query) {
  return (await request("GET", address(path, query))).json();
}

/** @param {string} id */
export const jobPath = (id) => `/jobs/${encodeURIComponent(id)}`;

/**
 * @param {{state?: string, name?: string, q?: string, experiment?: string, limit?: number, cursor?: string | null}} query
 * @returns {Promise<{items: Job[], next: string | null}>}
 */
export const listJobs = (query) => get("/jobs", query);

/** @returns {Promise<Job>} */
export const readJob = (/** @type {string} */ id) => get(jobPath(id));

/** @returns {Promise<Attempt[]>} */
export const listAttempts = async (/** @type {string} */ id) => (await get(`${jobPath(id)}/attempts`)).items;

/** @returns {Promise<Rank[]>} */
export const listRanks = async (/** @type {string} */ id) => (await get(`${jobPath(id)}/ranks`)).items;

/** @typedef {{step: number, epoch: number | null, bytes: number, verified: boolean, world_size: number, created_at: string, score: number | null, best: boolean, pinned: boolean}} Snapshot */

/** @returns {Promise<{items: Snapshot[], cadence: string | null}>} */
export const readSnapshots = (/** @type {string} */ id) => get(`${jobPath(id)}/snapshots`);

/**
 * @param {Record<string, unknown>} body
 * @param {string} key a repeat with the same key is answered with the job of the first request
 * @returns {Promise<Job>}
 */
export async function submitJob(body, key) {
  return (await request("POST", address("/jobs"), body, { "Idempotency-Key": key })).json();
}

/**
 * @param {string} id
 * @param {{name?: string, priority?: number, max_failures?: number}} changes
 */
export const changeJob = (id, changes) => request("PATCH", address(jobPath(id)), changes);

/**
 * @param {Blob} archive
 * @param {string} type of its content
 * @returns {Promise<{id: string, bytes: number}>}
 */
export async function uploadBundle(archive, type) {
  return (await request("POST", address("/bundles"), archive, { "Content-Type": type })).json();
}

/** @returns {Promise<import("./recipe-fields.js").Recipe[]>} */
export const listRecipes = async () => (await get("/recipes")).items;

/** @returns {Promise<{jobs: Record<string, number>, slots: {held: number, total: number}, goodput: number | null}>} */
export const readSummary = () => get("/summary");

/** @returns {Promise<import("./machine-page.js").Machine>} */
export const readMachine = () => get("/machine", { max_points: 360 });

/** @returns {Promise<{items: Summary[], next: string | null}>} */
export const listExperiments = (/** @type {{limit?: number, cursor?: string | null}} */ query) => get("/experiments", query);

/** @returns {Promise<Experiment>} */
export const readExperiment = (/** @type {string} */ id) => get(`/experiments/${encodeURIComponent(id)}`);

/** @returns {Promise<Curve[]>} */
export const listCurves = async (/** @type {string} */ id) => (await get(`/experiments/${encodeURIComponent(id)}/curves`)).items;

/** @returns {Promise<{items: import("./device-strip.js").Slot[], links: import("./topology.js").Link[]}>} */
export const listDevices = () => get("/devices");

/**
 * A piece of one log: the bytes from offset `start` up to `end`, cut between two characters.
 *
 * @param {string} id
 * @param {{rank: number, stream: string, attempt: number | null, offset?: number, limit?: number, tail?: number}} query
 */
export async function readLog(id, { rank, ...query }) {
  const response = await request("GET", address(`${jobPath(id)}/ranks/${rank}/log`, query));
  const data = new Uint8Array(await response.arrayBuffer());
  const offset = (/** @type {string} */ name) => Number(response.headers.get(name));
  return { data, start: offset("X-Offset"), end: offset("X-Next-Offset") };
}

/**
 * @param {string} id
 * @param {"cancel" | "drain" | "resume"} action
 */
export const act = (id, action) => request("POST", address(`${jobPath(id)}/${action}`), {});

/**
 * Python stacks of all threads of a living rank, as text.
 *
 * @param {string} id
 * @param {number} rank
 * @returns {Promise<string>}
 */
export const readStack = async (id, rank) => (await (await request("POST", address(`${jobPath(id)}/ranks/${rank}/stack`), {})).json()).stack;

/** @param {string} id */
export const forget = (id) => request("DELETE", address(jobPath(id)));
