/**
 * The filter line, which the URL stores, so that a list can be bookmarked or shared; and the views that this browser has
 * saved. The server parses the line.
 */
import { remember, rememberedTexts } from "../shared/browser-storage.js";
import { byId, h, patchChildren } from "../shared/dom.js";

const KEY = "rekindle-views";
/** @type {[string, string][]} name and line */
const VIEWS = [
  ["Failed", "state:failed"],
  ["Running", "state:running"],
  ["Held", "is:held"],
  ["Ended", "state:ended"],
  ["Archived", "is:archived"],
];

const savedViews = () => rememberedTexts(KEY);

export class FilterLine {
  #input = byId("filter", HTMLInputElement);
  /** @type {(string | null)[]} cursors of the pages before and including this one; the first page has none */
  #cursors = [null];
  #onChange;

  /** @param {() => void} onChange */
  constructor(onChange) {
    this.#onChange = onChange;
    this.#read();
    this.#input.addEventListener("input", () => this.#changed("replaceState"));
    byId("filters").addEventListener("submit", (event) => event.preventDefault());
    byId("save-view").addEventListener("click", () => this.#toggleSaved());
    addEventListener("popstate", () => this.#read());
  }

  /** The values of the request. */
  get query() {
    return { q: this.#input.value.trim(), cursor: this.#cursors.at(-1) ?? null };
  }

  get isFirstPage() {
    return this.#cursors.length === 1;
  }

  /** Whether one list of what was found is shown, not the sections. */
  get isFiltered() {
    return this.query.q !== "" || !this.isFirstPage;
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

  /** @param {"pushState" | "replaceState"} method */
  #changed(method) {
    this.#cursors = [null];
    this.#write(method);
    this.#showViews();
    this.#onChange();
  }

  #toggleSaved() {
    const [line, saved] = [this.query.q, savedViews()];
    if (line) remember(KEY, saved.includes(line) ? saved.filter((other) => other !== line) : [...saved, line]);
    this.#showViews();
  }

  #showViews() {
    const [line, saved] = [this.query.q, savedViews()];
    /** @type {[string, string][]} */
    const own = saved.map((each) => [each, each]);
    const views = [...VIEWS, ...own].map(([name, each]) => {
      const choose = () => {
        this.#input.value = each === this.query.q ? "" : each;
        this.#changed("pushState");
      };
      const button = h("button", { type: "button", class: "view", "aria-pressed": String(each === line), "data-focus": each }, h("bdi", {}, name));
      button.onclick = choose;
      return button;
    });
    patchChildren(byId("views"), views);
    const button = byId("save-view", HTMLButtonElement);
    button.hidden = !line || VIEWS.some(([, each]) => each === line);
    button.textContent = saved.includes(line) ? "Delete view" : "Save view";
  }

  #read() {
    const query = new URLSearchParams(location.search);
    this.#input.value = query.get("q") ?? "";
    const cursor = query.get("cursor");
    this.#cursors = cursor ? [null, cursor] : [null];
    this.#showViews();
  }

  /** @param {"pushState" | "replaceState"} method */
  #write(method) {
    const query = new URLSearchParams();
    for (const [key, value] of Object.entries(this.query)) if (value) query.set(key, value);
    history[method](null, "", query.size ? `/?${query}` : "/");
  }
}
