/** The page that submits a job: a form, the same as a command while one types, and refusals at their fields. */
import { Problem, listRecipes, readJob, submitJob, uploadBundle } from "./api.js";
import { copyText } from "./clipboard.js";
import { byId, h, setText } from "./dom.js";
import { FieldErrors } from "./field-errors.js";
import { bytes } from "./format.js";
import { asCommand, asCurl } from "./request-as.js";
import { Stream } from "./stream.js";
import { FormError, SubmitForm } from "./submit-form.js";

const form = /** @type {HTMLFormElement} */ (byId("submit-form"));
const button = /** @type {HTMLButtonElement} */ (byId("submit"));
const fields = new SubmitForm();
const errors = new FieldErrors(form, byId("form-error"));

/** Sent with the request, so that one that is repeated after a lost answer makes no second job. */
let attempt = { body: "", key: "" };
let uploads = 0;
/** What has to end before the job can be submitted. */
const busy = { sending: false, uploading: false };

function preview() {
  try {
    const body = fields.body;
    const { command, lacking } = asCommand(body.script === "" ? { ...body, script: "SCRIPT" } : body);
    setText(byId("preview-command"), command);
    setText(byId("preview-lacking"), lacking.length ? `The command line has no option for ${lacking.join(", and none for ")}.` : "");
    setText(byId("preview-curl"), asCurl(body, location.origin));
  } catch (error) {
    if (!(error instanceof FormError)) throw error;
    errors.mark(error.errors);
  }
}

/** @param {string} body */
function keyFor(body) {
  if (body !== attempt.body) {
    const random = crypto.getRandomValues(new Uint8Array(16));
    attempt = { body, key: `page-${[...random].map((byte) => byte.toString(16).padStart(2, "0")).join("")}` };
  }
  return attempt.key;
}

/** @param {Partial<typeof busy>} change */
function setBusy(change) {
  Object.assign(busy, change);
  button.disabled = busy.sending || busy.uploading;
}

async function submit() {
  setBusy({ sending: true });
  errors.clear();
  try {
    const body = fields.complete;
    const job = await submitJob(body, keyFor(JSON.stringify(body)));
    location.assign(`/jobs/${encodeURIComponent(job.id)}`);
  } catch (error) {
    refuse(error);
  } finally {
    setBusy({ sending: false });
  }
}

/** @param {unknown} error */
function refuse(error) {
  if (error instanceof FormError) return errors.show(error.errors);
  if (error instanceof Problem) {
    return errors.show(error.errors, error.errors.length ? "The server did not take it: see the fields below" : error.message);
  }
  errors.show([], "The server could not be reached. What you filled in is still here; try again");
}

/** The archive that was chosen last is the one that is submitted, whichever arrives first. @param {File} file */
async function upload(file) {
  const number = ++uploads;
  useBundle("", `Uploading ${file.name}, ${bytes(file.size)} …`);
  setBusy({ uploading: true });
  const isZip = file.name.toLowerCase().endsWith(".zip");
  const answer = await uploadBundle(file, isZip ? "application/zip" : "application/gzip").catch((error) => error);
  if (number !== uploads) return;
  setBusy({ uploading: false });
  if ("id" in answer) {
    errors.clear();
    return useBundle(answer.id, `${file.name} is on the server, ${bytes(answer.bytes)}.`);
  }
  useBundle("", `${file.name} could not be uploaded.`);
  errors.mark([{ field: "code.bundle", rule: answer instanceof Problem ? answer.message : "the server could not be reached" }]);
}

/**
 * @param {string} id
 * @param {string} status
 */
function useBundle(id, status) {
  /** @type {HTMLInputElement} */ (byId("bundle")).value = id;
  setText(byId("upload-status"), status);
  preview();
}

/** @param {string} id */
async function copy(id) {
  const note = byId("clone-note");
  try {
    const job = await readJob(id);
    fields.copy(job);
    const names = Object.keys(job.env);
    const secrets = names.length ? ` The values of ${names.join(", ")} are secret and were not copied: fill them in.` : "";
    note.replaceChildren("Filled in as job ", h("a", { href: `/jobs/${encodeURIComponent(job.id)}` }, h("bdi", {}, job.name)), ` was submitted. Its code is taken anew.${secrets}`);
  } catch (error) {
    setText(note, error instanceof Problem ? error.message : "The job to copy could not be read.");
  }
  note.hidden = false;
}

function wire() {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    void submit();
  });
  form.addEventListener("input", ({ target }) => {
    errors.forget(/** @type {Element} */ (target));
    preview();
  });
  for (const id of ["kind", "source", "recipe"]) byId(id).addEventListener("change", () => (fields.arrange(), preview()));
  byId("archive").addEventListener("change", ({ target }) => {
    const input = /** @type {HTMLInputElement} */ (target);
    const file = input.files?.[0];
    if (file) void upload(file);
    input.value = ""; // the same file, edited since, is a change again
  });
  for (const name of ["command", "curl"]) {
    byId(`copy-${name}`).addEventListener("click", () => void copyText(byId(`preview-${name}`).textContent ?? ""));
  }
}

async function begin() {
  wire();
  fields.arrange();
  const recipes = await listRecipes().catch(() => []);
  fields.offer(recipes);
  const clone = new URLSearchParams(location.search).get("clone");
  if (clone) await copy(clone);
  preview();
  byId("main").setAttribute("aria-busy", "false");
}

void begin();
new Stream({ job: null, log: null }, { live: () => undefined, event: () => undefined });
