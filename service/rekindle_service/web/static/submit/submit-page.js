/**
 * The page that submits a job: a form, the equivalent commands while the user types, and errors at their fields.
 *
 * @typedef {{field: string, rule: string, hint?: string}} FieldError
 */
import { EventStream } from "../events/event-stream.js";
import { Problem, call, experimentUrl, jobUrl } from "../shared/api.js";
import { asCommand, asCurl, asRequest } from "../shared/code-snippets.js";
import { byId, copyText, h, setText } from "../shared/dom.js";
import { bytes } from "../shared/format.js";
import { markReady } from "../shared/live-page.js";
import { lostOf } from "./matrix-fields.js";
import { FormError, SubmitForm, unfold } from "./submit-form.js";

// --- Validation errors of the server, shown at the fields of a form.

class FieldErrors {
  #form;
  #general;

  /**
   * @param {HTMLFormElement} form each of its fields is in an element with `data-field`, the field's name in the request
   * @param {HTMLElement} general for errors that belong to no field
   */
  constructor(form, general) {
    this.#form = form;
    this.#general = general;
  }

  /**
   * Show these errors and no others, and focus the first.
   *
   * @param {FieldError[]} errors @param {string} [sentence] about the whole form
   */
  show(errors, sentence = "") {
    this.clear();
    const others = errors.filter((error) => !this.#showAt(error)).map(({ field, rule, hint }) => errorText(`${field}: ${rule}`, hint));
    setText(this.#general, [sentence, ...others].filter(Boolean).join(" – "));
    const first = /** @type {HTMLElement | null} */ (this.#form.querySelector("[aria-invalid]"));
    (first ?? this.#general).focus();
  }

  /** Show these errors too, and leave the focus where it is. @param {FieldError[]} errors */
  add(errors) {
    errors.forEach(({ field }) => unmark(this.#containerOf(field)));
    errors.forEach((error) => this.#showAt(error));
  }

  clear() {
    setText(this.#general, "");
    unmark(this.#form);
  }

  /** The user has changed the field. @param {Element} control */
  clearAt(control) {
    unmark(control.closest("[data-field]"));
  }

  /** @param {FieldError} error */
  #showAt({ field, rule, hint }) {
    const container = this.#containerOf(field);
    const controls = /** @type {HTMLElement[]} */ ([...(container?.querySelectorAll("input, select, textarea") ?? [])]);
    const control = controls.find((each) => !each.closest("[hidden]"));
    if (!container || !control) return false;
    const id = `${control.id}-error`;
    const known = container.querySelector(".field-error");
    if (known) known.append(" ", errorText(rule, hint));
    else container.append(h("p", { id, class: "error field-error" }, errorText(rule, hint)));
    control.setAttribute("aria-invalid", "true");
    control.setAttribute("aria-errormessage", id);
    control.setAttribute("aria-describedby", [id, ...descriptionsOf(control).filter((each) => each !== id)].join(" "));
    return true;
  }

  /** The container of `snapshot.keep`, else that of `snapshot`; unfolded where it was folded. @param {string} field */
  #containerOf(field) {
    const containers = /** @type {HTMLElement[]} */ ([...this.#form.querySelectorAll("[data-field]")]);
    for (let name = field; name; name = name.slice(0, Math.max(0, name.lastIndexOf(".")))) {
      const container = containers.find((node) => node.dataset.field?.split(" ").includes(name) && !node.closest("[hidden]"));
      if (container) unfold(container);
      if (container) return container;
    }
    return undefined;
  }
}

/** @param {Element | null | undefined} container */
function unmark(container) {
  for (const control of container?.querySelectorAll("[aria-invalid]") ?? []) {
    const others = descriptionsOf(control).filter((id) => id !== control.getAttribute("aria-errormessage"));
    if (others.length) control.setAttribute("aria-describedby", others.join(" "));
    else control.removeAttribute("aria-describedby");
    control.removeAttribute("aria-invalid");
    control.removeAttribute("aria-errormessage");
  }
  container?.querySelectorAll(".field-error").forEach((node) => node.remove());
}

/** @param {Element} control */
const descriptionsOf = (control) => control.getAttribute("aria-describedby")?.split(" ") ?? [];

/** @param {string} rule @param {string | undefined} hint */
const errorText = (rule, hint) => `${rule.charAt(0).toUpperCase()}${rule.slice(1)}${hint ? ` (${hint})` : ""}.`;

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
