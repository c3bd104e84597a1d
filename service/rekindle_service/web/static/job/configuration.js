/**
 * What the job was submitted with, the code, packages and machine it runs with, and the same request for other tools.
 *
 * @import { ConfigurationPublic as Recorded, FileDifferencePublic as FileDifference, JobPublic as Job } from "../shared/api-types.d.ts"
 */
import { call, messageOf, Problem } from "../shared/api.js";
import { asCommand, asCurl, asPython, requestOf } from "../shared/code-snippets.js";
import { byId, copyText, h, patchChildren, setText } from "../shared/dom.js";
import { counted, NONE } from "../shared/format.js";
import { compareParameters, parametersOf, recordedEntries, submittedEntries } from "../shared/job-parameters.js";
import { fileNode } from "../shared/training-diff.js";

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

// --- job diff: How this job differs from another: what it was submitted with, the packages and machine, and the code
// line by line.

const MAX_CHOICES = 100;

/** Let the user choose another job, once there is a reason to list them; the page's URL stores the choice. @param {string} jobId */
export async function compareWithOthers(jobId) {
  const select = byId("diff-with", HTMLSelectElement);
  /** @type {Promise<void> | undefined} */
  let listed;
  const list = () => (listed ??= offerOthers(select, jobId));
  select.addEventListener("focus", list);
  select.addEventListener("pointerdown", list);
  select.addEventListener("change", () => void compare(jobId, select.value));
  const other = new URLSearchParams(location.search).get("diff");
  if (!other) return;
  await list();
  select.value = other;
  await compare(jobId, other);
  byId("configuration-title").scrollIntoView();
}

/** @param {HTMLSelectElement} select @param {string} jobId */
async function offerOthers(select, jobId) {
  const { items } = await call("GET /jobs", { limit: MAX_CHOICES });
  const others = items.filter(({ id }) => id !== jobId);
  select.append(...others.map(({ id, number, name }) => h("option", { value: id }, `#${number} ${name}`)));
}

let requests = 0;

/** @param {string} jobId @param {string} other id of a job, or "" for none */
async function compare(jobId, other) {
  const request = ++requests;
  const url = new URL(location.href);
  if (other) url.searchParams.set("diff", other);
  else url.searchParams.delete("diff");
  history.replaceState(null, "", url);
  byId("diff").hidden = true;
  setText(byId("diff-result"), other ? "Comparing …" : "");
  if (!other) return;
  try {
    const [ours, theirs, files] = await Promise.all([readParameters(jobId), readParameters(other), compareCode(jobId, other)]);
    if (request === requests) show(compareParameters([ours, theirs]).filter(({ differs }) => differs), files);
  } catch (error) {
    if (request === requests) setText(byId("diff-result"), messageOf(error));
  }
}

/**
 * @param {import("../shared/job-parameters.js").Line[]} lines
 * @param {FileDifference[] | null} files null where there is no code to compare
 */
function show(lines, files) {
  const differ = (/** @type {number} */ number, /** @type {string} */ noun, /** @type {string} */ nouns) => `${counted(number, noun, nouns)} ${number === 1 ? "differs" : "differ"}`;
  const code = files === null ? "no code to compare" : files.length ? differ(files.length, "file", "files") : "same code";
  setText(byId("diff-result"), `${lines.length ? differ(lines.length, "parameter", "parameters") : "same configuration"}; ${code}`);
  byId("diff").replaceChildren(...(lines.length ? [table(lines)] : []), ...(files ?? []).map(fileNode));
  byId("diff").hidden = false;
}

/** @param {string} id of a job */
async function readParameters(id) {
  const [job, configuration] = await Promise.all([call("GET /jobs/{job_id}", { job_id: id }), call("GET /jobs/{job_id}/configuration", { job_id: id })]);
  return parametersOf(job, configuration);
}

/** @param {string} job @param {string} other ids of jobs */
async function compareCode(job, other) {
  try {
    return (await call("GET /jobs/{job_id}/code/differences", { job_id: job, other })).items;
  } catch (error) {
    if (error instanceof Problem && error.status === 409) return null;
    throw error;
  }
}

/** @param {import("../shared/job-parameters.js").Line[]} lines */
function table(lines) {
  const head = h("tr", {}, ...["", "This job", "The other job"].map((title) => h("th", { scope: "col" }, title)));
  const cell = (/** @type {string} */ text) => h("td", {}, text ? h("code", {}, text) : h("span", { class: "muted" }, "–"));
  const body = lines.map(({ name, values }) => h("tr", {}, h("th", { scope: "row" }, h("bdi", {}, name)), ...values.map(cell)));
  return h("div", { class: "scroll-x", tabindex: 0, role: "region", "aria-label": "Differences" }, h("table", {}, h("thead", {}, head), h("tbody", {}, ...body)));
}
