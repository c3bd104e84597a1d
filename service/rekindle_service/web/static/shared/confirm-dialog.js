/**
 * A dialog that must be confirmed before something is done to jobs.
 *
 * @typedef {object} Question
 * @property {string} title
 * @property {{number: number, name: string}[]} jobs
 * @property {string} consequence
 * @property {string} [note]
 * @property {HTMLElement[]} [fields] what to choose first
 * @property {string} yes label of the button that confirms
 * @property {(chosen: FormData) => Promise<unknown>} run an error is shown in the dialog, which then stays open
 */
import { messageOf, Problem } from "./api.js";
import { byId, h, setText } from "./dom.js";
import { FieldErrors } from "./field-errors.js";

export class ConfirmDialog {
  #dialog = byId("confirm", HTMLDialogElement);
  #form = byId("confirm-form", HTMLFormElement);
  #yes = byId("confirm-yes", HTMLButtonElement);
  #errors = new FieldErrors(this.#form, byId("confirm-error"));
  /** @type {Question["run"] | null} */
  #run = null;

  constructor() {
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#confirm();
    });
    byId("confirm-no").addEventListener("click", () => this.close());
  }

  /** @param {Question} question */
  open({ title, jobs, consequence, note = "", fields = [], yes, run }) {
    this.#run = run;
    setText(byId("confirm-title"), title);
    byId("confirm-jobs").replaceChildren(...jobs.map(({ number, name }) => h("li", {}, `#${number} `, h("bdi", {}, name))));
    setText(byId("confirm-consequence"), consequence);
    setText(byId("confirm-note"), note);
    byId("confirm-fields").replaceChildren(...fields);
    this.#errors.clear();
    setText(this.#yes, yes);
    this.#dialog.showModal();
  }

  close() {
    this.#dialog.close();
  }

  async #confirm() {
    this.#yes.disabled = true;
    try {
      await this.#run?.(new FormData(this.#form));
      this.close();
    } catch (error) {
      const errors = error instanceof Problem ? error.errors : [];
      this.#errors.show(errors, errors.length ? "" : messageOf(error));
    } finally {
      this.#yes.disabled = false;
    }
  }
}

/** A labelled control of a question. @param {string} label @param {string} name @param {HTMLElement} control */
export function field(label, name, control) {
  control.setAttribute("name", name);
  control.id = `field-${name}`;
  return h("div", { "data-field": name }, h("label", { for: control.id }, label), control);
}
