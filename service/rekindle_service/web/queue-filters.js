/** Which jobs the list shows: controls, and the address that keeps them, so that a list can be sent to somebody. */
import { byId } from "./dom.js";

export class QueueFilters {
  #state = /** @type {HTMLSelectElement} */ (byId("filter-state"));
  #part = /** @type {HTMLInputElement} */ (byId("filter-name"));
  #experiment = /** @type {HTMLSelectElement} */ (byId("filter-experiment"));
  /** @type {(string | null)[]} cursors of the pages on the way to this one; the first page has none */
  #trail = [null];

  /** @param {() => void} changed */
  constructor(changed) {
    this.#read();
    const filter = (/** @type {"pushState" | "replaceState"} */ how) => {
      this.#trail = [null];
      this.#write(how);
      changed();
    };
    this.#state.addEventListener("change", () => filter("pushState"));
    this.#experiment.addEventListener("change", () => filter("pushState"));
    this.#part.addEventListener("input", () => filter("replaceState"));
    byId("filters").addEventListener("submit", (event) => event.preventDefault());
    addEventListener("popstate", () => {
      this.#read();
      changed();
    });
    addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.target instanceof HTMLInputElement) return;
      event.preventDefault();
      this.#part.focus();
    });
  }

  /** What to ask the server for. */
  get query() {
    return { state: this.#state.value, q: this.#part.value, experiment: this.#experiment.value, cursor: this.#trail.at(-1) };
  }

  get isFirstPage() {
    return this.#trail.length === 1;
  }

  get isNarrow() {
    const { state, q, experiment } = this.query;
    return Boolean(state || q || experiment) || !this.isFirstPage;
  }

  /** @param {string | null} cursor */
  older(cursor) {
    this.#trail.push(cursor);
    this.#write("pushState");
  }

  newer() {
    this.#trail.pop();
    this.#write("pushState");
  }

  /**
   * The experiments that can be chosen; the one that is chosen stays, also when it is none of them.
   *
   * @param {import("./api.js").Summary[]} experiments
   */
  offer(experiments) {
    const chosen = this.#experiment.value;
    const known = experiments.map(({ id, name }) => new Option(name, id));
    const missing = chosen && !experiments.some(({ id }) => id === chosen) ? [new Option(chosen, chosen)] : [];
    this.#experiment.replaceChildren(new Option("All", ""), ...known, ...missing);
    this.#experiment.value = chosen;
  }

  #read() {
    const query = new URLSearchParams(location.search);
    this.#state.value = query.get("state") ?? "";
    this.#part.value = query.get("q") ?? "";
    const experiment = query.get("experiment") ?? "";
    if (experiment && ![...this.#experiment.options].some(({ value }) => value === experiment)) {
      this.#experiment.add(new Option(experiment, experiment));
    }
    this.#experiment.value = experiment;
    const cursor = query.get("cursor");
    this.#trail = cursor ? [null, cursor] : [null];
  }

  /** @param {"pushState" | "replaceState"} how */
  #write(how) {
    const query = new URLSearchParams();
    for (const [key, value] of Object.entries(this.query)) if (value) query.set(key, value);
    history[how](null, "", query.size ? `/?${query}` : "/");
  }
}
