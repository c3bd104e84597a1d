/** Which jobs the list shows: controls, and the URL that stores them, so that a list can be bookmarked or shared. */
import { byId } from "../shared/dom.js";

/** The controls by the name of their value in the URL. */
const FILTERS = { state: "filter-state", q: "filter-name", owner: "filter-owner", experiment: "filter-experiment" };

/** @param {HTMLSelectElement} select @param {string} chosen stays, also when it is none of the options */
function choose(select, chosen) {
  if (![...select.options].some(({ value }) => value === chosen)) select.add(new Option(chosen, chosen));
  select.value = chosen;
}

export class QueueFilters {
  #controls = Object.entries(FILTERS).map(([name, id]) => ({ name, control: /** @type {HTMLInputElement | HTMLSelectElement} */ (byId(id)) }));
  #experiment = byId(FILTERS.experiment, HTMLSelectElement);
  #owner = byId(FILTERS.owner, HTMLSelectElement);
  /** @type {Set<string>} */
  #owners = new Set();
  /** @type {(string | null)[]} cursors of the pages before and including this one; the first page has none */
  #cursors = [null];

  /** @param {() => void} onChange */
  constructor(onChange) {
    this.#read();
    for (const { control } of this.#controls) {
      control.addEventListener("input", () => {
        this.#cursors = [null];
        this.#write(control instanceof HTMLSelectElement ? "pushState" : "replaceState");
        onChange();
      });
    }
    byId("filters").addEventListener("submit", (event) => event.preventDefault());
    addEventListener("popstate", () => this.#read());
    addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.target instanceof HTMLInputElement) return;
      event.preventDefault();
      byId(FILTERS.q).focus();
    });
  }

  /** The values of the request. @returns {Record<string, string | null>} */
  get query() {
    const values = Object.fromEntries(this.#controls.map(({ name, control }) => [name, control.value]));
    return { ...values, cursor: this.#cursors.at(-1) ?? null };
  }

  get isFirstPage() {
    return this.#cursors.length === 1;
  }

  get isFiltered() {
    return this.#controls.some(({ control }) => control.value) || !this.isFirstPage;
  }

  /** @param {string | null} cursor */
  nextPage(cursor) {
    this.#cursors.push(cursor);
    this.#write("pushState");
  }

  previousPage() {
    this.#cursors.pop();
    this.#write("pushState");
  }

  /**
   * The experiments to choose from; the chosen one stays, also when it is none of them.
   *
   * @param {{id: string, name: string}[]} experiments
   */
  offer(experiments) {
    const chosen = this.#experiment.value;
    const known = experiments.map(({ id, name }) => new Option(name, id));
    this.#experiment.replaceChildren(new Option("All", ""), ...known);
    choose(this.#experiment, chosen);
  }

  /** More owners to choose from, once there are two. @param {(string | null)[]} owners */
  offerOwners(owners) {
    for (const owner of owners) if (owner) this.#owners.add(owner);
    const chosen = this.#owner.value;
    if (this.#owner.options.length === this.#owners.size + 1) return;
    this.#owner.replaceChildren(new Option("All", ""), ...[...this.#owners].sort().map((owner) => new Option(owner, owner)));
    choose(this.#owner, chosen);
    byId("owner-filter").hidden = this.#owners.size < 2 && !chosen;
  }

  #read() {
    const query = new URLSearchParams(location.search);
    for (const { name, control } of this.#controls) control.value = query.get(name) ?? "";
    choose(this.#experiment, query.get("experiment") ?? "");
    choose(this.#owner, query.get("owner") ?? "");
    byId("owner-filter").hidden = this.#owners.size < 2 && !this.#owner.value;
    const cursor = query.get("cursor");
    this.#cursors = cursor ? [null, cursor] : [null];
  }

  /** @param {"pushState" | "replaceState"} method */
  #write(method) {
    const query = new URLSearchParams();
    for (const [key, value] of Object.entries(this.query)) if (value) query.set(key, value);
    history[method](null, "", query.size ? `/?${query}` : "/");
  }
}
