/**
 * What the job was submitted with, the code, packages and machine it runs with, and the same request for other tools.
 *
 * @import { ConfigurationPublic as Recorded, JobPublic as Job } from "../shared/api-types.d.ts"
 */
import { call, compareUrl } from "../shared/api.js";
import { asCommand, asCurl, asPython, requestOf } from "../shared/code-snippets.js";
import { byId, copyText, h, patchChildren, setText } from "../shared/dom.js";
import { counted, NONE } from "../shared/format.js";
import { recordedEntries, submittedEntries } from "../shared/job-parameters.js";

/** By the id of the button that copies it. @type {Record<string, (job: Job) => string>} */
const SNIPPETS = {
  "copy-command": submitCommand,
  "copy-curl": (job) => asCurl(requestOf(job), location.origin),
  "copy-python": (job) => asPython(requestOf(job)),
};

/** The command that submits the same job. @param {Job} job */
export function submitCommand(job) {
  const { command, missing } = asCommand(requestOf(job));
  return missing ? `${command}\n# ${missing}` : command;
}

/** @type {Job | null} */
let submitted = null;
for (const [id, text] of Object.entries(SNIPPETS)) byId(id).addEventListener("click", () => submitted && void copyText(text(submitted)));

let shown = "";

/** What changes while a job runs is seldom in here. @param {Job} job */
export function showSubmitted(job) {
  submitted = job;
  const entries = submittedEntries(job);
  const text = JSON.stringify(entries);
  if (text === shown) return;
  shown = text;
  showEntries("configuration", entries);
}

/** @param {Recorded} recorded */
export function showRecorded(recorded) {
  showEntries("recorded", recordedEntries(recorded));
  const packages = Object.entries(recorded.environment?.packages ?? {});
  byId("packages").hidden = packages.length === 0;
  setText(byId("packages-summary"), counted(packages.length, "package"));
  patchChildren(byId("packages-list"), packages.map(([name, version]) => h("li", {}, h("bdi", {}, name), " ", h("code", {}, String(version)))));
}

/** @param {string} id of a description list @param {import("../shared/job-parameters.js").Entry[]} entries */
function showEntries(id, entries) {
  const codes = (/** @type {string[]} */ values) => (values.length ? values.map((value) => h("code", {}, value)) : [NONE]);
  patchChildren(byId(id), entries.flatMap(([label, values]) => [h("dt", {}, label), h("dd", {}, ...codes(values))]));
}

const MAX_CHOICES = 100;

/** Lead to the comparison with another job; they are listed once there is a reason to. @param {string} jobId */
export function compareWithOthers(jobId) {
  const select = byId("compare-with", HTMLSelectElement);
  /** @type {Promise<void> | undefined} */
  let listed;
  for (const event of ["focus", "pointerdown"]) select.addEventListener(event, () => (listed ??= offerOthers(select, jobId)));
  select.addEventListener("change", () => select.value && location.assign(compareUrl([jobId, select.value])));
}

/** @param {HTMLSelectElement} select @param {string} jobId */
async function offerOthers(select, jobId) {
  const { items } = await call("GET /jobs", { limit: MAX_CHOICES });
  const others = items.filter(({ id }) => id !== jobId);
  select.append(...others.map(({ id, number, name }) => h("option", { value: id }, `#${number} ${name}`)));
}
