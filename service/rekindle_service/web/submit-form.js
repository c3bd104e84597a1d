/** The form of a job and the request that it stands for, in both directions. */
import { byId } from "./dom.js";
import { RecipeFields } from "./recipe-fields.js";
import { join, split } from "./shell-words.js";

/**
 * @typedef {import("./request-as.js").Body} Body
 * @typedef {import("./api.js").Job} Job
 */

/** Fields of the request that are one control each: id, and the field's path. */
const TEXTS = [
  ["name", "name"],
  ["python", "python"],
  ["best", "snapshot.best"],
];
const NUMBERS = [
  ["priority", "priority"],
  ["max-failures", "max_failures"],
  ["hang-timeout", "hang_timeout"],
  ["time-limit", "time_limit"],
  ["every-steps", "snapshot.every_steps"],
  ["every-seconds", "snapshot.every_seconds"],
  ["every-epochs", "snapshot.every_epochs"],
  ["keep", "snapshot.keep"],
];
/** What the form shows while they are as the server has them by default. */
const DEFAULTS = new Map(Object.entries({ priority: "0", "max-failures": "3", keep: "3" }));

/** What is asked for where a source of code is chosen and none is given. */
const MISSING = Object.entries({ path: "name the folder", git: "name the repository", bundle: "choose an archive" });

/** Refused before it is sent. */
export class FormError extends Error {
  /**
   * @param {string} field
   * @param {string} rule
   */
  constructor(field, rule) {
    super(`${field}: ${rule}`);
    this.errors = [{ field, rule }];
  }
}

const control = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ (byId(id));
const text = (/** @type {string} */ id) => control(id).value.trim();

export class SubmitForm {
  #recipeFields = new RecipeFields(byId("recipe-options"));
  /** @type {Map<string, import("./recipe-fields.js").Recipe>} */
  #recipes = new Map();

  /** @param {import("./recipe-fields.js").Recipe[]} recipes */
  offer(recipes) {
    const chosen = control("recipe").value;
    this.#recipes = new Map(recipes.map((recipe) => [recipe.name, recipe]));
    byId("recipe").replaceChildren(...recipes.map(({ name }) => new Option(name, name)));
    if (this.#recipes.has(chosen)) control("recipe").value = chosen;
    this.arrange();
  }

  /** Show the fields that the choices made so far need. */
  arrange() {
    const [kind, source] = [control("kind").value, control("source").value];
    const isRecipe = kind === "recipe";
    byId("script-field").hidden = kind !== "script";
    byId("module-field").hidden = kind !== "module";
    byId("recipe-field").hidden = !isRecipe;
    byId("recipe-options-fold").hidden = !isRecipe;
    byId("code").hidden = isRecipe;
    for (const one of ["path", "git", "bundle"]) byId(`source-${one}`).hidden = source !== one;
    const recipe = isRecipe ? this.#recipes.get(control("recipe").value) : undefined;
    byId("recipe-title").textContent = recipe?.title.replace(/^Recipe: /, "") ?? "";
    if (recipe) this.#recipeFields.show(recipe);
  }

  /** The body with all that a job cannot do without. @returns {Body} @throws {FormError} */
  get complete() {
    const body = this.body;
    const kind = control("kind").value;
    if (!body[kind]) throw new FormError(kind, `name the ${kind} to run`);
    for (const [source, missing] of MISSING) if (body.code?.[source] === "") throw new FormError(`code.${source}`, missing);
    return body;
  }

  /** As far as it is filled in. @returns {Body} @throws {FormError} */
  get body() {
    const kind = control("kind").value;
    /** @type {Body} */
    const body = { [kind]: text(kind) };
    const args = kind === "recipe" ? [...this.#recipeFields.args, ...this.#args()] : this.#args();
    if (args.length) body.args = args;
    if (kind !== "recipe") Object.assign(body, this.#code());
    for (const [id, path] of TEXTS) if (text(id)) put(body, path, text(id));
    Object.assign(body, ranks(text("ranks-min"), text("ranks-max")));
    if (control("device").value !== "auto") body.device = control("device").value;
    for (const [id, path] of NUMBERS) if (text(id) && text(id) !== DEFAULTS.get(id)) put(body, path, number(text(id)));
    if (control("auto").checked) put(body, "snapshot.auto", true);
    if (!control("warm").checked) body.warm = false;
    const after = text("after").split(/[\s,]+/).filter(Boolean);
    if (after.length) body.after = after;
    const env = variables(control("env").value);
    return Object.keys(env).length ? { ...body, env } : body;
  }

  /** Fill the form with what `job` was submitted with; the values of its variables are secret. @param {Job} job */
  copy(job) {
    const { kind, value } = job.target;
    const { path, bundle, git, commit, ref } = job.code;
    control("kind").value = kind;
    control(kind).value = value;
    control("source").value = git ? "git" : bundle ? "bundle" : path ? "path" : "none";
    control("code-path").value = path ?? "";
    control("bundle").value = bundle ?? "";
    control("git").value = git ?? "";
    control("ref").value = commit ?? ref ?? "";
    this.arrange();
    control("args").value = join(kind === "recipe" ? this.#recipeFields.take(job.args) : job.args);
    for (const [id, at] of [...TEXTS, ...NUMBERS]) control(id).value = String(find(job, at) ?? "");
    control("ranks-min").value = String(job.ranks.min);
    control("ranks-max").value = job.ranks.max === job.ranks.min ? "" : String(job.ranks.max);
    control("device").value = job.device;
    control("auto").checked = job.snapshot.auto;
    control("warm").checked = job.warm;
    control("after").value = job.after.join(" ");
    control("env").value = Object.keys(job.env).map((name) => `${name}=\n`).join("");
  }

  #args() {
    try {
      return split(control("args").value);
    } catch (error) {
      throw new FormError("args", error instanceof Error ? error.message : String(error));
    }
  }

  #code() {
    switch (control("source").value) {
      case "path":
        return { code: { path: text("code-path") } };
      case "git":
        return { code: { git: text("git"), ...(text("ref") ? { ref: text("ref") } : {}) } };
      case "bundle":
        return { code: { bundle: text("bundle") } };
      default:
        return {};
    }
  }
}

/**
 * What is no number goes to the server as it is: it knows best what to say about that.
 *
 * @param {string} given
 */
function number(given) {
  return /^-?\d+(\.\d+)?$/.test(given) ? Number(given) : given;
}

/**
 * @param {string} least
 * @param {string} most
 */
function ranks(least, most) {
  if (!most || most === least) return least && least !== "1" ? { ranks: number(least) } : {};
  return { ranks: { min: number(least || "1"), max: number(most) } };
}

/** @param {string} lines */
function variables(lines) {
  /** @type {Record<string, string>} */
  const found = {};
  for (const line of lines.split("\n").filter((each) => each.trim())) {
    const at = line.indexOf("=");
    if (at < 1) throw new FormError("env", `each line must be NAME=value, and ${JSON.stringify(line.slice(0, 40))} is not`);
    found[line.slice(0, at).trim()] = line.slice(at + 1);
  }
  return found;
}

/**
 * @param {Body} body
 * @param {string} path
 * @param {unknown} value
 */
function put(body, path, value) {
  const [outer, inner] = path.split(".");
  if (inner === undefined) body[outer] = value;
  else body[outer] = { ...body[outer], [inner]: value };
}

/**
 * @param {any} job
 * @param {string} path
 */
const find = (job, path) => path.split(".").reduce((found, name) => found?.[name], job);
