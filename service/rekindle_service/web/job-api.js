/**
 * What only the page of one job asks of the REST interface.
 *
 * @typedef {{offset: number, line_offset: number, text: string}} LogMatch
 * @typedef {{rank: number, stream: string, count: number, complete: boolean, first: LogMatch}} RankMatches
 *
 * @typedef {object} Surroundings what the keeper found when the latest run began
 * @property {string} host
 * @property {string} system
 * @property {string} processor
 * @property {number} cores
 * @property {number} memory bytes
 * @property {string} python
 * @property {Record<string, string>} packages versions by name
 *
 * @typedef {{folder: string, code: {digest: string, files: number, bytes: number} | null, surroundings: Surroundings | null}} ConfigurationFacts
 * @typedef {{path: string, change: "added" | "removed" | "changed", diff: string | null}} FileDifference
 * @typedef {{name: string, step: number, value: number | null}} MetricName
 */
import { address, get, jobPath, request } from "./api.js";

/**
 * @param {string} id
 * @param {{rank: number, stream: string, attempt: number, q: string, from: number | null, backwards: boolean, limit: number}} query
 * @returns {Promise<{items: LogMatch[], next: number | null, size: number}>}
 */
export const searchLog = (id, { rank, ...query }) => get(`${jobPath(id)}/ranks/${rank}/log/search`, query);

/**
 * @param {string} id
 * @param {{q: string, attempt: number}} query
 * @returns {Promise<RankMatches[]>}
 */
export const searchLogs = async (id, query) => (await get(`${jobPath(id)}/logs/search`, query)).items;

/**
 * Addresses of one log and of all logs as files.
 *
 * @param {string} id
 * @param {import("./log-feed.js").Source} source
 */
export function downloads(id, { rank, stream, attempt }) {
  return { log: address(`${jobPath(id)}/ranks/${rank}/log/file`, { stream, attempt }), zip: address(`${jobPath(id)}/logs.zip`) };
}

/**
 * @param {string} id
 * @param {number} step
 */
export const snapshotFile = (id, step) => address(`${jobPath(id)}/snapshots/${step}/files.zip`);

/**
 * @param {string} id
 * @param {number} step
 * @param {boolean} pinned
 */
export const pin = (id, step, pinned) => request(pinned ? "PUT" : "DELETE", address(`${jobPath(id)}/snapshots/${step}/pin`));

/**
 * @param {string} id
 * @param {number} snapshot step
 */
export const resumeFrom = (id, snapshot) => request("POST", address(`${jobPath(id)}/resume`), { snapshot });

/**
 * @param {string} id
 * @param {number} priority
 */
export const setPriority = (id, priority) => request("PATCH", address(jobPath(id)), { priority });

/**
 * @param {string} id
 * @param {string} fault
 * @param {number | null} rank null for any
 */
export const injectFault = (id, fault, rank) => request("POST", address(`${jobPath(id)}/chaos`), rank === null ? { fault } : { fault, rank });

/** @returns {Promise<ConfigurationFacts>} */
export const readConfiguration = (/** @type {string} */ id) => get(`${jobPath(id)}/configuration`);

/**
 * @param {string} id
 * @param {string} other
 * @returns {Promise<FileDifference[]>}
 */
export const compareCode = async (id, other) => (await get(`${jobPath(id)}/code/differences`, { other })).items;

/** @returns {Promise<MetricName[]>} */
export const listMetricNames = async (/** @type {string} */ id) => (await get(`${jobPath(id)}/metrics/names`)).items;

/**
 * @param {string} id
 * @param {string[]} names
 * @param {number} [most] points of each
 * @returns {Promise<import("./api.js").Series[]>}
 */
export async function listSeries(id, names, most = 1000) {
  const query = new URLSearchParams([["max_points", String(most)], ...names.map((name) => ["name", name])]);
  return (await (await request("GET", `${address(`${jobPath(id)}/metrics`)}?${query}`)).json()).items;
}
