/** The page that submits a job: a form, the equivalent commands while the user types, and errors at their fields. */
import { EventStream } from "../events/event-stream.js";
import { Problem, call, experimentUrl, jobUrl } from "../shared/api.js";
import { asCommand, asCurl, asRequest } from "../shared/code-snippets.js";
import { byId, copyText, h, setText } from "../shared/dom.js";
import { FieldErrors } from "../shared/field-errors.js";
import { bytes } from "../shared/format.js";
import { markReady } from "../shared/live-page.js";
import { lostOf } from "./matrix-fields.js";
import { FormError, SubmitForm } from "./submit-form.js";

// --- The page.

const form = byId("submit-form", HTMLFormElement);
const fields = new SubmitForm();
const errors = new FieldErrors(form, byId("form-error"));

/** The key goes with the request, so that a repeat after a lost answer creates no second job. */
let idempotency = { body: "", key: "" };
let uploads = 0;
/** What has to end before the job can be submitted. */
const busy = { sending: false, uploading: false };

function preview() {
  try {
    const body = fields.body;
    const { command, missing } = asCommand(body.script === "" ? { ...body, script: "SCRIPT" } : body);
    setText(byId("preview-command"), command);
    setText(byId("preview-missing"), missing);
    setText(byId("preview-curl"), asCurl(body, location.origin));
    setText(byId("submit"), body.matrix === undefined ? "Submit the job" : "Submit the experiment");
  } catch (error) {
    if (!(error instanceof FormError)) throw error;
    errors.add(error.errors);
  }
}

/** @param {string} body */
function keyFor(body) {
  if (body !== idempotency.body) {
    const random = crypto.getRandomValues(new Uint8Array(16));
    idempotency = { body, key: `page-${[...random].map((byte) => byte.toString(16).padStart(2, "0")).join("")}` };
  }
  return idempotency.key;
}

/** @param {Partial<typeof busy>} change */
function setBusy(change) {
  Object.assign(busy, change);
  byId("submit", HTMLButtonElement).disabled = busy.sending || busy.uploading;
}

async function submit() {
  setBusy({ sending: true });
  errors.clear();
  try {
    const body = fields.complete;
    const headers = { "Idempotency-Key": keyFor(JSON.stringify(body)) };
    const request = asRequest(body);
    const url = request.path === "jobs"
      ? jobUrl((await call("POST /jobs", {}, request.body, headers)).id)
      : experimentUrl((await call("POST /experiments", {}, request.body, headers)).id);
    location.assign(url);
  } catch (error) {
    showRejection(error);
  } finally {
    setBusy({ sending: false });
  }
}

/** @param {unknown} error */
function showRejection(error) {
  if (error instanceof FormError) return errors.show(error.errors);
  if (!(error instanceof Problem)) return errors.show([], "Server unreachable. What you filled in is still here; try again");
  const found = error.errors.map((each) => ({ ...each, field: each.field.replace(/^base\./, "") })); // of an array
  errors.show(found, error.errors.length ? "Submission rejected: see the fields below" : error.message);
}

/** The archive that was chosen last is submitted, whichever arrives first. @param {File} file */
async function upload(file) {
  const number = ++uploads;
  useBundle("", `Uploading ${file.name}, ${bytes(file.size)} …`);
  setBusy({ uploading: true });
  const type = file.name.toLowerCase().endsWith(".zip") ? "application/zip" : "application/gzip";
  const answer = await call("POST /bundles", {}, file, { "Content-Type": type }).catch((error) => error);
  if (number !== uploads) return;
  setBusy({ uploading: false });
  if ("id" in answer) {
    errors.clear();
    return useBundle(answer.id, `${file.name} is on the server, ${bytes(answer.bytes)}.`);
  }
  useBundle("", `${file.name} could not be uploaded.`);
  errors.add([{ field: "code.bundle", rule: answer instanceof Problem ? answer.message : "server unreachable" }]);
}

/** @param {string} id @param {string} status */
function useBundle(id, status) {
  byId("bundle", HTMLInputElement).value = id;
  setText(byId("upload-status"), status);
  preview();
}

/** @param {string} id @param {string | null} step of the snapshot from which the new job continues */
async function clone(id, step) {
  const note = byId("clone-note");
  try {
    const job = await call("GET /jobs/{job_id}", { job_id: id });
    fields.fill(job);
    if (step !== null) {
      byId("continue-from", HTMLInputElement).value = id;
      byId("continue-step", HTMLInputElement).value = step;
    }
    const names = Object.keys(job.env);
    const hasKept = job.snapshot_step !== null || job.checkpoints.length > 0;
    const kept = hasKept && step === null ? " It starts from the beginning; to keep its checkpoints, name it as Continue job." : "";
    const secrets = names.length ? ` The values of ${names.join(", ")} are secret and were not copied: fill them in.` : "";
    note.replaceChildren(h("span", {}, "Filled in from job ", h("a", { href: jobUrl(id) }, h("bdi", {}, job.name)), `. Its code is packaged again.${kept}${secrets}`));
  } catch (error) {
    setText(note, error instanceof Problem ? error.message : "The job to clone could not be read.");
  }
  note.hidden = false;
}

/** An experiment has a part of the form of its own. @param {string} id empty for a new one */
async function vary(id) {
  byId("experiment-fields", HTMLDetailsElement).open = true;
  if (!id) return byId("matrix").focus();
  const note = byId("clone-note");
  note.hidden = false;
  try {
    const { name, definition, trials } = await call("GET /experiments/{experiment_id}", { experiment_id: id });
    if (trials.length) fields.fill(await call("GET /jobs/{job_id}", { job_id: trials[0].job }));
    fields.fillExperiment(name, definition);
    const missing = [lostOf(definition), Object.keys(definition.base.env ?? {}).length ? "the secret values of variables" : ""].filter(Boolean).join(", ");
    const link = h("a", { href: experimentUrl(id) }, h("bdi", {}, name));
    note.replaceChildren(h("span", {}, "Filled in from experiment ", link, `.${missing ? ` Not copied: ${missing}.` : ""}`));
  } catch (error) {
    setText(note, error instanceof Problem ? error.message : "The experiment could not be read.");
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  void submit();
});
form.addEventListener("input", ({ target }) => {
  errors.clearAt(/** @type {Element} */ (target));
  preview();
});
for (const id of ["kind", "source", "recipe"]) byId(id).addEventListener("change", () => (fields.updateVisibility(), preview()));
const archive = byId("archive", HTMLInputElement);
archive.addEventListener("change", () => {
  const file = archive.files?.[0];
  if (file) void upload(file);
  archive.value = ""; // choosing the same file, edited since, is a change again
});
for (const name of ["command", "curl"]) {
  byId(`copy-${name}`).addEventListener("click", () => void copyText(byId(`preview-${name}`).textContent ?? ""));
}
new EventStream({ resync: () => undefined, event: () => undefined });
fields.updateVisibility();
fields.setRecipes((await call("GET /recipes").catch(() => ({ items: [] }))).items);
const query = new URLSearchParams(location.search);
const cloned = query.get("clone");
if (cloned) await clone(cloned, query.get("step"));
const varied = query.get("experiment");
if (varied !== null) await vary(varied);
preview();
markReady();
