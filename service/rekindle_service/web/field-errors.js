/** Which fields of a form break which rules, in the server's words, shown at the fields. */
import { h, setText } from "./dom.js";

/** @typedef {{field: string, rule: string, hint?: string}} FieldError */

export class FieldErrors {
  #form;
  #general;

  /**
   * @param {HTMLFormElement} form each of its fields lies in an element with `data-field`, the field's name in the request
   * @param {HTMLElement} general where what belongs to no field is said
   */
  constructor(form, general) {
    this.#form = form;
    this.#general = general;
  }

  /**
   * Show these and no others, and go to the first.
   *
   * @param {FieldError[]} errors
   * @param {string} [sentence] about the whole form
   */
  show(errors, sentence = "") {
    this.clear();
    const homeless = errors.filter((error) => !this.#showAt(error)).map(({ field, rule, hint }) => words(`${field}: ${rule}`, hint));
    setText(this.#general, [sentence, ...homeless].filter(Boolean).join(" – "));
    const first = /** @type {HTMLElement | null} */ (this.#form.querySelector("[aria-invalid]"));
    (first ?? this.#general).focus();
  }

  /** Show these beside what is shown already, and leave the reader where they type. @param {FieldError[]} errors */
  mark(errors) {
    for (const { field } of errors) {
      const place = this.#placeOf(field);
      if (place) unmark(place);
    }
    errors.forEach((error) => this.#showAt(error));
  }

  clear() {
    setText(this.#general, "");
    unmark(this.#form);
  }

  /** The field no longer holds what was refused. @param {Element} control */
  forget(control) {
    const place = control.closest("[data-field]");
    if (place) unmark(place);
  }

  /** @param {FieldError} error */
  #showAt({ field, rule, hint }) {
    const place = this.#placeOf(field);
    const control = place && /** @type {HTMLElement | undefined} */ ([...place.querySelectorAll("input, select, textarea")].find(isShown));
    if (!place || !control) return false;
    const id = `${control.id}-error`;
    const known = place.querySelector(".field-error");
    if (known) known.append(" ", words(rule, hint));
    else place.append(h("p", { id, class: "error field-error" }, words(rule, hint)));
    control.setAttribute("aria-invalid", "true");
    control.setAttribute("aria-errormessage", id);
    control.setAttribute("aria-describedby", [id, ...describers(control).filter((each) => each !== id)].join(" "));
    return true;
  }

  /** The place of `snapshot.keep`, else that of `snapshot`; opened where it was folded away. @param {string} field */
  #placeOf(field) {
    for (let name = field; name; name = name.slice(0, Math.max(0, name.lastIndexOf(".")))) {
      const place = [...this.#form.querySelectorAll("[data-field]")].find(
        (node) => /** @type {HTMLElement} */ (node).dataset.field?.split(" ").includes(name) && !node.closest("[hidden]"),
      );
      const fold = place?.closest("details");
      if (fold) fold.open = true;
      if (place) return place;
    }
    return undefined;
  }
}

/** @param {Element} place */
function unmark(place) {
  for (const control of place.querySelectorAll("[aria-invalid]")) {
    const others = describers(control).filter((id) => id !== control.getAttribute("aria-errormessage"));
    if (others.length) control.setAttribute("aria-describedby", others.join(" "));
    else control.removeAttribute("aria-describedby");
    control.removeAttribute("aria-invalid");
    control.removeAttribute("aria-errormessage");
  }
  place.querySelectorAll(".field-error").forEach((node) => node.remove());
}

/** @param {Element} control */
const describers = (control) => control.getAttribute("aria-describedby")?.split(" ") ?? [];

/** @param {Element} control */
const isShown = (control) => !control.closest("[hidden]");

/**
 * @param {string} rule
 * @param {string | undefined} hint
 */
const words = (rule, hint) => `${rule.charAt(0).toUpperCase()}${rule.slice(1)}${hint ? ` (${hint})` : ""}.`;
