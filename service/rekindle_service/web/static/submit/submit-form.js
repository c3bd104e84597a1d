/**
 * The form of a job and its request, in both directions.
 *
 * @import { JobPublic as Job, RecipePublic as Recipe } from "../shared/api-types.d.ts"
 * @import { Body } from "../shared/code-snippets.js"
 */
import { messageOf } from "../shared/api.js";
import { byId, setText } from "../shared/dom.js";
import { join, split } from "../shared/shell-words.js";
import { fillMatrix, matrixBody } from "./matrix-fields.js";
import { RecipeFields } from "./recipe-fields.js";

/** Fields of the request that are one control each: id of the control, and path of the field. */
const TEXTS = [
  ["name", "name"],
  ["array", "array"],
  ["python", "python"],
  ["continue-from", "continue_from"],
  ["monitor", "snapshot.monitor"],
  ["partition", "slurm.partition"],
  ["account", "slurm.account"],
  ["qos", "slurm.qos"],
  ["slurm-time", "slurm.time"],
  ["constraint", "slurm.constraint"],
  ["slurm-mem", "slurm.mem"],
  ["gres", "slurm.gres"],
  ["gpus-per-node", "slurm.gpus_per_node"],
];
/** Lists with one item a line: id of the control, and path of the field. */
const SLURM_LINES = [
  ["slurm-prologue", "slurm.prologue"],
  ["slurm-extra", "slurm.extra"],
];
/** Options of the copy that are on or off: id of the control, and field. @type {["gitignore" | "keep-links", "gitignore" | "keep_links"][]} */
const TICKS = [
  ["gitignore", "gitignore"],
  ["keep-links", "keep_links"],
];
/** Fields of the same name as their control, with the default of each. @type {["device" | "launch" | "links", string][]} */
const CHOICES = [
  ["device", "auto"],
  ["launch", "auto"],
  ["links", "preferred"],
];
/** Lists of ids of jobs: id of the control, and field. @type {["after" | "after-any", "after" | "after_any"][]} */
const DEPENDENCIES = [
  ["after", "after"],
  ["after-any", "after_any"],
];
/** Numbers are what the template has numeric inputs for, with the path of the field around each. */
const NUMBERS = [.../** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll("#submit-form [data-field] > input[inputmode]"))]
  .map((input) => [input.id, input.parentElement?.dataset.field ?? ""])
  .filter(([id]) => !id.startsWith("ranks-"));
/** The error where a source of code is chosen and not filled in. */
const MISSING = Object.entries({ path: "name the directory", git: "name the repository", bundle: "choose an archive" });

/** A field that is invalid before it is sent. */
export class FormError extends Error {
  /** @param {string} field @param {string} rule */
  constructor(field, rule) {
    super(`${field}: ${rule}`);
    this.errors = [{ field, rule }];
  }
}

const control = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ (byId(id));
const text = (/** @type {string} */ id) => control(id).value.trim();
const words = (/** @type {string} */ id) => text(id).split(/[\s,]+/).filter(Boolean);

export class SubmitForm {
  #recipeFields = new RecipeFields();
  /** @type {Map<string, Recipe>} */
  #recipes = new Map();

  /** @param {Recipe[]} recipes */
  setRecipes(recipes) {
    const chosen = text("recipe");
    this.#recipes = new Map(recipes.map((recipe) => [recipe.name, recipe]));
    byId("recipe").replaceChildren(...recipes.map(({ name }) => new Option(name, name)));
    if (this.#recipes.has(chosen)) control("recipe").value = chosen;
    this.updateVisibility();
  }

  /** Show the fields that the choices made so far need. */
  updateVisibility() {
    const [kind, source] = [text("kind"), text("source")];
    for (const one of ["script", "module", "recipe"]) byId(`${one}-field`).hidden = kind !== one;
    for (const one of ["path", "git", "bundle"]) byId(`source-${one}`).hidden = source !== one;
    byId("recipe-options-fold").hidden = kind !== "recipe";
    byId("code").hidden = kind === "recipe";
    const recipe = kind === "recipe" ? this.#recipes.get(text("recipe")) : undefined;
    setText(byId("recipe-title"), recipe?.title.replace(/^Recipe: /, "") ?? "");
    if (recipe) this.#recipeFields.show(recipe);
  }

  /** The request, with everything a job requires. @returns {Body} @throws {FormError} */
  get complete() {
    const body = this.body;
    const kind = text("kind");
    if (!body[kind]) throw new FormError(kind, `name the ${kind} to run`);
    for (const [source, missing] of MISSING) if (body.code?.[source] === "") throw new FormError(`code.${source}`, missing);
    return body;
  }

  /** The request as far as the form is filled in. @returns {Body} @throws {FormError} */
  get body() {
    const kind = text("kind");
    /** @type {Body} */
    const body = { [kind]: text(kind) };
    const args = [...(kind === "recipe" ? this.#recipeFields.args : []), ...typedArguments("args")];
    if (args.length) body.args = args;
    const onRestart = typedArguments("on-restart");
    if (onRestart.length) body.on_restart = onRestart;
    if (kind !== "recipe") Object.assign(body, code());
    for (const [id, path] of TEXTS) if (text(id)) setAt(body, path, text(id));
    Object.assign(body, ranks(text("ranks-min"), text("ranks-max")));
    for (const [id, usual] of CHOICES) if (text(id) && text(id) !== usual) body[id] = text(id);
    for (const [id, path] of NUMBERS) if (text(id) && text(id) !== control(id).defaultValue) setAt(body, path, number(text(id)));
    if (control("auto").checked) setAt(body, "snapshot.auto", true);
    if (!control("warm").checked) body.warm = false;
    if (!control("resizable").checked) body.resizable = false;
    if (control("hold").checked) body.hold = true;
    for (const [id, field] of TICKS) if (kind !== "recipe" && control(id).checked) body[field] = true;
    const exclude = control("exclude").value.split("\n").filter((line) => line.trim());
    if (kind !== "recipe" && exclude.length) body.exclude = exclude;
    if (text("nodes")) body.nodes = range(text("nodes"));
    for (const [id, path] of SLURM_LINES) {
      const lines = control(id).value.split("\n").map((line) => line.trim()).filter(Boolean);
      if (lines.length) setAt(body, path, lines);
    }
    if (control("slurm").checked && !body.slurm) body.slurm = {};
    for (const [id, field] of DEPENDENCIES) if (words(id).length) body[field] = words(id);
    const watch = text("watch").split("\n").filter((line) => line.trim());
    if (watch.length) body.watch = watch;
    Object.assign(body, matrixBody());
    const env = variables(control("env").value);
    return Object.keys(env).length ? { ...body, env } : body;
  }

  /** Fill the form with what `job` was submitted with; the values of its variables are secret. @param {Job} job */
  fill(job) {
    const { kind, value } = job.target;
    const { path, bundle, git, commit, ref } = job.code;
    const values = {
      kind,
      [kind]: value,
      source: git ? "git" : bundle ? "bundle" : path ? "path" : "none",
      "code-path": path,
      bundle,
      git,
      ref: commit ?? ref,
      "ranks-min": job.ranks.min,
      "ranks-max": job.ranks.max === job.ranks.min ? "" : job.ranks.max,
      ...Object.fromEntries(CHOICES.map(([id]) => [id, job[id]])),
      nodes: job.nodes.max === 1 ? "" : job.nodes.min === job.nodes.max ? job.nodes.max : `${job.nodes.min}:${job.nodes.max}`,
      ...Object.fromEntries(SLURM_LINES.map(([id, at]) => [id, valueAt(job, at)?.join("\n")])),
      ...Object.fromEntries(DEPENDENCIES.map(([id, field]) => [id, job[field].join(" ")])),
      watch: job.watch.join("\n"),
      env: Object.keys(job.env).map((name) => `${name}=\n`).join(""),
      ...Object.fromEntries([...TEXTS, ...NUMBERS].map(([id, at]) => [id, valueAt(job, at)])),
    };
    for (const [id, each] of Object.entries(values)) control(id).value = String(each ?? "");
    this.updateVisibility();
    control("args").value = join(kind === "recipe" ? this.#recipeFields.fill(job.args) : job.args);
    control("on-restart").value = join(job.on_restart);
    control("exclude").value = job.exclude.join("\n");
    for (const [id, field] of TICKS) control(id).checked = job[field];
    control("auto").checked = job.snapshot.auto;
    control("slurm").checked = job.slurm !== null;
    control("warm").checked = job.warm;
    control("resizable").checked = job.resizable;
    control("hold").checked = false;
  }

  /** What an experiment adds to the first of its jobs, with which the form is filled. @param {string} name @param {Body} definition */
  fillExperiment(name, definition) {
    const args = [...(definition.base.args ?? []), ...(definition.args ?? [])];
    control("name").value = name;
    control("args").value = join(text("kind") === "recipe" ? this.#recipeFields.fill(args) : args);
    control("array").value = definition.array ?? "";
    fillMatrix(definition);
  }
}

/** @param {"args" | "on-restart"} id */
function typedArguments(id) {
  try {
    return split(control(id).value);
  } catch (error) {
    throw new FormError(id.replace("-", "_"), messageOf(error));
  }
}

function code() {
  const source = text("source");
  if (source === "none") return {};
  const ref = source === "git" && text("ref") ? { ref: text("ref") } : {};
  return { code: { [source]: text(source === "path" ? "code-path" : source), ...ref } };
}

/** What is no number is sent unchanged: the server explains best what is wrong with it. @param {string} value */
const number = (value) => (/^-?\d+(\.\d+)?$/.test(value) ? Number(value) : value);

/** "2" or "1:4". @param {string} value */
function range(value) {
  const [min, max] = value.split(":").map((part) => number(part.trim()));
  return max === undefined ? min : { min, max };
}

/** @param {string} min @param {string} max */
function ranks(min, max) {
  if (!max || max === min) return min && min !== "1" ? { ranks: number(min) } : {};
  return { ranks: { min: number(min || "1"), max: number(max) } };
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

/** @param {Body} body @param {string} path @param {unknown} value */
function setAt(body, path, value) {
  const [outer, inner] = path.split(".");
  body[outer] = inner === undefined ? value : { ...body[outer], [inner]: value };
}

/** @param {any} job @param {string} path */
const valueAt = (job, path) => path.split(".").reduce((found, name) => found?.[name], job);
