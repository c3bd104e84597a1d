/**
 * A field for each option of a recipe; together they are arguments.
 *
 * @import { RecipeOption, RecipePublic as Recipe } from "../shared/api-types.d.ts"
 * @typedef {HTMLInputElement | HTMLSelectElement} Control
 */
import { byId, h } from "../shared/dom.js";

export class RecipeFields {
  /** @type {Map<string, {option: RecipeOption, control: Control}>} */
  #fields = new Map();

  /** @param {Recipe} recipe values of options that the recipe before had too are kept */
  show(recipe) {
    const before = this.#fields;
    this.#fields = new Map(
      recipe.options.map((option) => {
        const control = controlFor(option);
        const old = before.get(option.name);
        if (old && fits(option, valueOf(old.control))) setValue(control, valueOf(old.control));
        return [option.name, { option, control }];
      }),
    );
    byId("recipe-options").replaceChildren(...[...this.#fields.values()].map(({ option, control }) => fieldFor(option, control)));
  }

  /** Values that differ from the defaults, as arguments. */
  get args() {
    return [...this.#fields.values()].flatMap(({ option, control }) => {
      const value = valueOf(control);
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
function valueOf(control) {
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
