/**
 * The form of a job and its request, in both directions.
 *
 * @import { JobPublic as Job, RecipePublic as Recipe, RecipeOption } from "../shared/api-types.d.ts"
 * @import { Body, JobOption } from "../shared/code-snippets.js"
 * @typedef {HTMLInputElement | HTMLSelectElement} Control
 * @typedef {JobOption & {control: HTMLInputElement}} OptionField an option of a job with its field
 */
import { messageOf } from "../shared/api.js";
import { JOB_OPTIONS, setAt, valueAt } from "../shared/code-snippets.js";
import { byId, h, setOptions, setText } from "../shared/dom.js";
import { unfold } from "../shared/field-errors.js";
import { join, split } from "../shared/shell-words.js";
import { control, fillMatrix, matrixBody, number, text } from "./matrix-fields.js";

const OPTIONS = JOB_OPTIONS.map((option) => {
  const field = /** @type {HTMLElement} */ (document.querySelector(`#submit-form [data-field="${option.path}"]`));
  return { ...option, control: /** @type {HTMLInputElement} */ (field.querySelector("input, select, textarea")) };
});
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

export class SubmitForm {
  #recipeFields = new RecipeFields();
  /** @type {Map<string, Recipe>} */
  #recipes = new Map();

  /** @param {Recipe[]} recipes */
  setRecipes(recipes) {
    this.#recipes = new Map(recipes.map((recipe) => [recipe.name, recipe]));
    setOptions(byId("recipe", HTMLSelectElement), recipes.map(({ name }) => [name, name]));
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
    if (kind !== "recipe") Object.assign(body, code());
    for (const option of OPTIONS) {
      const value = kind === "recipe" && option.needsCode ? undefined : valueOf(option);
      if (value !== undefined && !same(value, option.default)) setAt(body, option.path, option.path === "slurm" ? {} : value);
    }
    const args = [...(kind === "recipe" ? this.#recipeFields.args : []), ...(body.args ?? [])];
    if (args.length) body.args = args;
    if (text("array")) body.array = text("array");
    return Object.assign(body, matrixBody());
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
    };
    for (const [id, each] of Object.entries(values)) control(id).value = String(each ?? "");
    this.updateVisibility();
    for (const option of OPTIONS) show(option, valueAt(job, option.path));
    for (const option of OPTIONS) if (!same(valueOf(option) ?? option.default, option.default)) unfold(option.control);
    if (kind === "recipe") control("args").value = join(this.#recipeFields.fill(job.args));
  }

  /** What an experiment adds to the first of its jobs, with which the form is filled. @param {string} name @param {Body} definition */
  fillExperiment(name, definition) {
    const args = [...(definition.base.args ?? []), ...(definition.args ?? [])];
    control("name").value = name;
    control("args").value = join(text("kind") === "recipe" ? this.#recipeFields.fill(args) : args);
    control("array").value = definition.array ?? "";
    fillMatrix(definition);
    unfold(control("array"));
  }
}

/** What a field holds, as the request has it; undefined where it is empty. @param {OptionField} option @returns {unknown} */
function valueOf({ control: { checked, value }, path, widget }) {
  if (widget === "tick") return checked;
  if (!value.trim()) return undefined;
  if (widget === "number") return number(value.trim());
  if (widget === "range") return range(value.trim());
  if (widget === "jobs") return value.split(/[\s,]+/).filter(Boolean);
  if (widget === "lines") return value.split("\n").filter((line) => line.trim());
  if (widget === "variables") return variables(value);
  return widget === "words" ? wordsOf(value, path) : value.trim();
}

/** Fill a field with what a job has. @param {OptionField} option @param {any} value */
function show({ control: field, path, widget, default: usual }, value) {
  if (widget === "tick") field.checked = path === "slurm" ? value !== null : (value ?? usual);
  else if (widget === "range") field.value = value.min === value.max ? value.max : `${value.min}:${value.max}`;
  else if (widget === "lines") field.value = (value ?? []).join("\n");
  else if (widget === "jobs") field.value = value.join(" ");
  else if (widget === "words") field.value = join(value);
  else if (widget === "variables") field.value = Object.keys(value).map((name) => `${name}=\n`).join("");
  else field.value = String(value ?? "");
}

/** @param {unknown} one @param {unknown} other */
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** @param {string} value @param {string} field */
function wordsOf(value, field) {
  try {
    return split(value);
  } catch (error) {
    throw new FormError(field, messageOf(error));
  }
}

function code() {
  const source = text("source");
  if (source === "none") return {};
  const ref = source === "git" && text("ref") ? { ref: text("ref") } : {};
  return { code: { [source]: text(source === "path" ? "code-path" : source), ...ref } };
}

/** "2" or "1:4". @param {string} value */
function range(value) {
  const [min, max] = value.split(":").map((part) => number(part.trim()));
  return max === undefined ? min : { min, max };
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

// --- A field for each option of a recipe; together they are arguments.

class RecipeFields {
  /** @type {Map<string, {option: RecipeOption, control: Control}>} */
  #fields = new Map();

  /** @param {Recipe} recipe values of options that the recipe before had too are kept */
  show(recipe) {
    const before = this.#fields;
    this.#fields = new Map(
      recipe.options.map((option) => {
        const control = controlFor(option);
        const old = before.get(option.name);
        if (old && fits(option, controlValue(old.control))) setValue(control, controlValue(old.control));
        return [option.name, { option, control }];
      }),
    );
    byId("recipe-options").replaceChildren(...[...this.#fields.values()].map(({ option, control }) => fieldFor(option, control)));
  }

  /** Values that differ from the defaults, as arguments. */
  get args() {
    return [...this.#fields.values()].flatMap(({ option, control }) => {
      const value = controlValue(control);
      if (option.is_flag) return value ? [`--${option.name}`] : [];
      return value === "" ? [] : [`--${option.name}`, String(value)];
    });
  }

  /** Fill the fields from arguments. @param {string[]} args @returns {string[]} the arguments that have no field */
  fill(args) {
    const rest = [];
    for (let at = 0; at < args.length; at += 1) {
      const [, name, inline] = /^--([^=]+)(?:=(.*))?$/s.exec(args[at]) ?? [];
      const field = name === undefined ? undefined : this.#fields.get(name);
      const value = inline ?? args[at + 1];
      if (field?.option.is_flag) setValue(field.control, true);
      else if (field && value !== undefined && fits(field.option, value)) {
        setValue(field.control, value);
        if (inline === undefined) at += 1;
      } else rest.push(args[at]);
    }
    return rest;
  }
}

/** @param {RecipeOption} option @returns {Control} */
function controlFor({ name, help, metavar, choices, is_flag: isFlag, default: usual }) {
  const id = `recipe-${name}`;
  const description = help && `${id}-help`;
  if (isFlag) return h("input", { id, type: "checkbox", "aria-describedby": description });
  if (!choices.length) {
    return h("input", { id, autocomplete: "off", spellcheck: "false", placeholder: usual ?? metavar ?? "", "aria-describedby": description });
  }
  const options = choices.map((choice) => (choice === usual ? new Option(`${choice} (default)`, "") : new Option(choice)));
  return h("select", { id, "aria-describedby": description }, usual === null && new Option("not set", ""), ...options);
}

/** @param {RecipeOption} option @param {Control} control */
function fieldFor({ help, is_flag: isFlag }, control) {
  const label = h("label", { for: control.id }, h("code", {}, `--${control.id.replace("recipe-", "")}`));
  const description = help && h("p", { id: `${control.id}-help`, class: "muted" }, help);
  return h("div", { class: "field" }, ...(isFlag ? [h("div", { class: "tick" }, control, label)] : [label, control]), description);
}

/** @param {Control} control */
function controlValue(control) {
  return control instanceof HTMLInputElement && control.type === "checkbox" ? control.checked : control.value.trim();
}

/** @param {Control} control @param {string | boolean} value */
function setValue(control, value) {
  if (typeof value === "boolean") /** @type {HTMLInputElement} */ (control).checked = value;
  else if (control instanceof HTMLSelectElement && ![...control.options].some((option) => option.value === value)) control.value = "";
  else control.value = value;
}

/** @param {RecipeOption} option @param {string | boolean} value */
function fits(option, value) {
  if (typeof value === "boolean") return option.is_flag;
  return !option.is_flag && (value === "" || !option.choices.length || option.choices.includes(value));
}
