/**
 * The best result of each ended experiment that the table shows, and the range of all its results. Each is read once.
 *
 * @import { BestResultPublic } from "../shared/api-types.d.ts"
 * @typedef {import("./job-row.js").ExperimentRow} ExperimentRow
 */
import { valueText } from "../results/value-axis.js";
import { call, warn } from "../shared/api.js";
import { significant } from "../shared/format.js";

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
  const text = sentenceOf(await call("GET /experiments/{experiment_id}/best", { experiment_id: id }));
  if (known.size >= MAX_KNOWN) known.clear();
  known.set(key, text);
  return text;
}

/** @param {BestResultPublic} result */
function sentenceOf({ measure, best, parameters, low, high }) {
  if (measure === null || low === null || high === null) return "";
  if (best === null) return low === high ? `${measure} ${significant(low)}` : `${measure} ${significant(low)} to ${significant(high)}`;
  const row = Object.entries(parameters ?? {}).map(([name, value]) => `${name} ${valueText(/** @type {any} */ (value))}`);
  return `best ${measure} ${significant(best)}${row.length ? ` with ${row.join(", ")}` : ""}; all ${significant(low)} to ${significant(high)}`;
}
