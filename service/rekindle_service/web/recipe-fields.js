/**
 * A field for each option of a recipe; together they are arguments.
 *
 * @typedef {{name: string, help: string, metavar: string | null, choices: string[], is_flag: boolean, default: string | null}} Option
 * @typedef {{name: string, title: string, options: Option[]}} Recipe
 */
import { h } from "./dom.js";

export class RecipeFields {
  #place;
  /** @type {Map<string, {option: Option, control: HTMLInputElement | HTMLSelectElement}>} */
  #fields = new Map();

  /** @param {HTMLElement} place */
  constructor(place) {
    this.#place = place;
  }

  /** @param {Recipe | undefined} recipe fields of the one before that this one has too keep their values */
  show(recipe) {
    const before = this.#fields;
    this.#fields = new Map(
      (recipe?.options ?? []).map((option) => {
        const control = controlFor(option);
        const old = before.get(option.name);
        if (old && fits(option, value(old.control))) set(control, value(old.control));
        return [option.name, { option, control }];
      }),
    );
    this.#place.replaceChildren(...[...this.#fields.values()].map(({ option, control }) => fieldFor(option, control)));
  }

  /** What differs from the defaults, as arguments. */
  get args() {
    return [...this.#fields.values()].flatMap(({ option, control }) => {
      const chosen = value(control);
      if (option.is_flag) return chosen ? [`--${option.name}`] : [];
      return chosen === "" ? [] : [`--${option.name}`, String(chosen)];
    });
  }

  /**
   * Fill in what the arguments say of these fields.
   *
   * @param {string[]} args
   * @returns {string[]} the arguments that no field stands for
   */
  take(args) {
    const rest = [];
    for (let at = 0; at < args.length; at += 1) {
      const [, name, inline] = /^--([^=]+)(?:=(.*))?$/s.exec(args[at]) ?? [];
      const field = name === undefined ? undefined : this.#fields.get(name);
      const given = inline ?? args[at + 1];
      if (field?.option.is_flag) set(field.control, true);
      else if (field && given !== undefined && fits(field.option, given)) {
        set(field.control, given);
        if (inline === undefined) at += 1;
      } else rest.push(args[at]);
    }
    return rest;
  }
}

/** @param {Option} option */
function controlFor(option) {
  const id = `recipe-${option.name}`;
  const described = option.help && `${id}-help`;
  if (option.is_flag) return /** @type {HTMLInputElement} */ (h("input", { id, type: "checkbox", "aria-describedby": described }));
  if (!option.choices.length) {
    const shown = option.default ?? (option.metavar ? `${option.metavar}` : "");
    return /** @type {HTMLInputElement} */ (h("input", { id, autocomplete: "off", spellcheck: "false", placeholder: shown, "aria-describedby": described }));
  }
  const select = /** @type {HTMLSelectElement} */ (h("select", { id, "aria-describedby": described }));
  const usual = option.choices.map((choice) => new Option(choice === option.default ? `${choice} (default)` : choice, choice === option.default ? "" : choice));
  select.replaceChildren(...(option.default === null ? [new Option("not given", "")] : []), ...usual);
  return select;
}

/**
 * @param {Option} option
 * @param {HTMLElement} control
 */
function fieldFor(option, control) {
  const label = h("label", { for: control.id }, h("code", {}, `--${option.name}`));
  const help = option.help && h("p", { id: `${control.id}-help`, class: "muted" }, option.help);
  const box = option.is_flag ? h("div", { class: "tick" }, control, label) : null;
  return h("div", { class: "field" }, ...(box ? [box] : [label, control]), help);
}

/** @param {HTMLInputElement | HTMLSelectElement} control */
function value(control) {
  return control instanceof HTMLInputElement && control.type === "checkbox" ? control.checked : control.value.trim();
}

/**
 * @param {HTMLInputElement | HTMLSelectElement} control
 * @param {string | boolean} to
 */
function set(control, to) {
  if (typeof to === "boolean") /** @type {HTMLInputElement} */ (control).checked = to;
  else if (control instanceof HTMLSelectElement && ![...control.options].some((option) => option.value === to)) control.value = "";
  else control.value = to;
}

/**
 * @param {Option} option
 * @param {string | boolean} given
 */
function fits(option, given) {
  if (typeof given === "boolean") return option.is_flag;
  return !option.is_flag && (given === "" || !option.choices.length || option.choices.includes(given));
}
