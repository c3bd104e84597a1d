/**
 * The best result of each ended experiment that the table shows, and the range of all its results. Each is read once.
 *
 * @typedef {import("./job-row.js").ExperimentRow} ExperimentRow
 */
import { call, warn } from "../shared/api.js";

const MAX_KNOWN = 500;
/** By the experiment and when its last job ended. @type {Map<string, string>} */
const known = new Map();

/** @param {ExperimentRow[]} rows one after the other: the server reads the metrics of all jobs of each */
export async function showResults(rows) {
  for (const row of rows) {
    const text = known.get(row.key) ?? (await read(row).catch(warn("the result of an experiment")));
    if (text !== undefined) row.showResult(text);
  }
}

/** @param {ExperimentRow} row */
async function read({ id, key }) {
  const { text } = await call("GET /experiments/{experiment_id}/best", { experiment_id: id });
  if (known.size >= MAX_KNOWN) known.clear();
  known.set(key, text);
  return text;
}
