/**
 * Which columns the table shows, and by which its rows are sorted; this browser remembers the former.
 *
 * @import { JobPublic as Job, OverviewItem } from "../shared/api-types.d.ts"
 */
import { remember, rememberedTexts } from "../shared/browser-storage.js";
import { byId, h } from "../shared/dom.js";

const KEY = "rekindle-columns";

/** What each column is sorted by. @type {Record<string, (job: Job) => number | string | null>} */
const VALUES = {
  state: ({ state }) => state,
  job: ({ name }) => name.toLowerCase(),
  owner: ({ owner }) => owner ?? "local",
  progress: ({ progress }) => progress,
  eta: ({ eta_seconds: seconds }) => seconds,
  ranks: ({ world_size: size, ranks }) => size ?? ranks.max,
  restarts: ({ restarts }) => restarts,
  note: ({ reason }) => reason.toLowerCase(),
  age: ({ created_at: at }) => (at ? -Date.parse(at) : null),
};
/** Without these a row says nothing. */
const FIXED = new Set(["state", "job"]);

export class TableColumns {
  #table;
  #onSort;
  /** @type {{column: string, descending: boolean} | null} null: as the server lists them */
  #order = null;
  /** @type {Set<string>} */
  #hidden = new Set(rememberedTexts(KEY).filter((column) => column in VALUES && !FIXED.has(column)));

  /** @param {HTMLElement} table its headings have `data-column` @param {() => void} onSort */
  constructor(table, onSort) {
    this.#table = table;
    this.#onSort = onSort;
    for (const head of table.querySelectorAll("th[data-column]")) this.#prepare(/** @type {HTMLElement} */ (head));
    this.#showHidden();
  }

  /** Rows without the value, and those that are no job, come last. @param {OverviewItem[]} items */
  sorted(items) {
    if (!this.#order) return items;
    const { column, descending } = this.#order;
    const value = (/** @type {OverviewItem} */ { job }) => (job ? VALUES[column](job) : null);
    const sign = descending ? -1 : 1;
    return [...items].sort((one, other) => {
      const [a, b] = [value(one), value(other)];
      if (a === null || b === null) return Number(a === null) - Number(b === null);
      return a < b ? -sign : a > b ? sign : 0;
    });
  }

  /** @param {HTMLElement} head */
  #prepare(head) {
    const column = head.dataset.column ?? "";
    const title = head.textContent ?? "";
    const sort = h("button", { type: "button", class: "sort", title: "Sort the rows shown by this" }, title);
    sort.addEventListener("click", () => this.#sortBy(column));
    head.replaceChildren(sort);
    if (FIXED.has(column)) return;
    const box = h("input", { type: "checkbox", checked: !this.#hidden.has(column) });
    box.addEventListener("change", () => this.#toggle(column, box.checked));
    byId("columns").append(h("label", {}, box, ` ${title}`));
  }

  /** First ascending, then descending, then as the server lists them. @param {string} column */
  #sortBy(column) {
    const before = this.#order?.column === column ? this.#order : null;
    this.#order = before?.descending ? null : { column, descending: before !== null };
    for (const head of this.#table.querySelectorAll("th[data-column]")) {
      const isSorted = this.#order?.column === head.getAttribute("data-column");
      if (isSorted) head.setAttribute("aria-sort", this.#order?.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    this.#onSort();
  }

  /** @param {string} column @param {boolean} shown */
  #toggle(column, shown) {
    if (shown) this.#hidden.delete(column);
    else this.#hidden.add(column);
    remember(KEY, [...this.#hidden]);
    this.#showHidden();
  }

  #showHidden() {
    this.#table.dataset.hidden = [...this.#hidden].join(" ");
    const shown = this.#table.querySelectorAll("thead th").length - this.#hidden.size;
    for (const head of this.#table.querySelectorAll("th[scope=rowgroup]")) head.setAttribute("colspan", String(shown));
  }
}
