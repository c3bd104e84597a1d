/**
 * What the job was submitted with, the code, packages and machine it runs with, and the same request for other tools.
 *
 * @import { ConfigurationPublic as Recorded, JobPublic as Job } from "../shared/api-types.d.ts"
 */
import { copyText } from "../shared/clipboard.js";
import { asCommand, asCurl, asPython, requestOf } from "../shared/code-snippets.js";
import { byId, h, patchChildren, setText } from "../shared/dom.js";
import { NONE, counted } from "../shared/format.js";
import { recordedEntries, submittedEntries } from "../shared/job-parameters.js";

/** By the id of the button that copies it. @type {Record<string, (job: Job) => string>} */
const SNIPPETS = {
  "copy-command": (job) => {
    const { command, missing } = asCommand(requestOf(job));
    return missing ? `${command}\n# ${missing}` : command;
  },
  "copy-curl": (job) => asCurl(requestOf(job), location.origin),
  "copy-python": (job) => asPython(requestOf(job)),
};

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
