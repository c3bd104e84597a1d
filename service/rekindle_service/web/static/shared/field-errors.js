/**
 * Validation errors of the server, shown at the fields of a form.
 *
 * @typedef {{field: string, rule: string, hint?: string}} FieldError
 */
import { h, setText } from "./dom.js";

export class FieldErrors {
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

/** Open every fold around a field. @param {Element} field */
export function unfold(field) {
  for (let fold = field.closest("details"); fold; fold = fold.parentElement?.closest("details") ?? null) fold.open = true;
}
