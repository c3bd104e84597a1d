/**
 * The table of jobs in sections: one row each, changed in place, so that focus and selection survive every update.
 *
 * @import { JobPublic as Job, OverviewItem, SameError } from "../shared/api-types.d.ts"
 */
import { remember, rememberedTexts } from "../shared/browser-storage.js";
import { byId, h, KeyedChildren, setText } from "../shared/dom.js";
import { count } from "../shared/format.js";
import { everySecond } from "../shared/timing.js";
import { ExperimentRow, JobRow, keyOf, rowOf } from "./job-row.js";

/** A section; `total` is how many there are in all, null where that is not known. @typedef {{items: OverviewItem[], total: number | null}} Section */

export class JobTable {
  #table = byId("jobs");
  #all = byId("select-all", HTMLInputElement);
  #onSelection;
  /** @type {Map<string, SectionView>} */
  #sections = new Map();
  /** @type {Map<string, Job>} selected ones, also those on other pages of the list */
  #selected = new Map();
  /** @type {string | null} where a range begins */
  #anchor = null;
  #columns = new TableColumns(this.#table, () => this.#sections.forEach((section) => section.sort(this.#columns)));

  /** @param {(selected: Job[]) => void} onSelection */
  constructor(onSelection) {
    this.#onSelection = onSelection;
    for (const body of this.#table.querySelectorAll("tbody")) if (body.id) this.#sections.set(body.id, new SectionView(body));
    this.#table.addEventListener("click", (event) => this.#clicked(event));
    this.#all.addEventListener("change", () => this.#select(this.#rows.map(({ job }) => job?.id), this.#all.checked));
    everySecond(() => this.#rows.forEach((row) => row.tick()));
  }

  /** The job rows in the order shown. */
  get #rows() {
    return [...this.#sections.values()].flatMap(({ rows }) => rows);
  }

  /** Rows of jobs that run. */
  get runningRows() {
    return this.#rows.filter(({ job }) => job?.state === "running");
  }

  /** Rows of experiments whose jobs have ended. */
  get experimentRows() {
    return [...this.#sections.values()].flatMap(({ views }) => views.filter((row) => row instanceof ExperimentRow));
  }

  /**
   * Sections by id; all others are hidden.
   *
   * @param {Record<string, Section>} sections @param {Record<string, SameError[]>} [alike] by the id of a failed job
   */
  show(sections, alike = {}) {
    for (const [id, view] of this.#sections) view.show(sections[id] ?? { items: [], total: null }, this.#columns);
    for (const row of this.#rows) row.showAlike(alike[row.job?.id ?? ""] ?? []);
    for (const { job } of this.#rows) if (job && this.#selected.has(job.id)) this.#selected.set(job.id, job);
    this.#selectionChanged();
  }

  get isEmpty() {
    return [...this.#sections.values()].every(({ size }) => size === 0);
  }

  /** The new version of a job, whether the table shows it or not. @param {Job} job */
  update(job) {
    this.#rows.find((row) => row.job?.id === job.id)?.show(job);
    if (!this.#selected.has(job.id)) return;
    this.#selected.set(job.id, job);
    this.#selectionChanged();
  }

  /** The job has been deleted. @param {string} id */
  remove(id) {
    if (this.#selected.delete(id)) this.#selectionChanged();
  }

  clearSelection() {
    this.#selected.clear();
    this.#selectionChanged();
  }

  /** With the shift key, all rows from the one chosen before get what this one gets. @param {MouseEvent} event */
  #clicked({ target, shiftKey }) {
    if (!(target instanceof HTMLInputElement) || !target.closest("tbody")) return;
    const ids = this.#rows.map(({ job }) => job?.id);
    const [from, to] = [ids.indexOf(this.#anchor ?? ""), ids.indexOf(target.value)];
    const range = shiftKey && from >= 0 ? ids.slice(Math.min(from, to), Math.max(from, to) + 1) : [target.value];
    this.#anchor = target.value;
    this.#select(range, target.checked);
  }

  /** @param {Iterable<string | undefined>} ids of shown rows @param {boolean} on */
  #select(ids, on) {
    const jobs = new Map(this.#rows.map(({ job }) => [job?.id, job]));
    for (const id of ids) {
      const job = jobs.get(id);
      if (on && job) this.#selected.set(job.id, job);
      else if (id) this.#selected.delete(id);
    }
    this.#selectionChanged();
  }

  #selectionChanged() {
    const rows = this.#rows;
    const ticked = rows.filter((row) => (row.selected = this.#selected.has(row.job?.id ?? ""))).length;
    this.#all.checked = ticked > 0 && ticked === rows.length;
    this.#all.indeterminate = ticked > 0 && ticked < rows.length;
    this.#onSelection([...this.#selected.values()]);
  }
}

/** The rows of one section, and its heading in the table body before it. */
class SectionView {
  #body;
  #head;
  #count = h("span", { class: "muted" });
  /** @type {KeyedChildren<OverviewItem, {node: HTMLElement, update: (item: OverviewItem) => void}>} */
  #rows;
  /** @type {OverviewItem[]} */
  #items = [];

  /** @param {HTMLElement} body */
  constructor(body) {
    this.#body = body;
    this.#head = document.querySelector(`[data-head="${body.id}"]`);
    this.#head?.querySelector("h2")?.append(" ", this.#count);
    this.#rows = new KeyedChildren(body, keyOf, rowOf);
  }

  get views() {
    return [...this.#rows.views.values()];
  }

  get rows() {
    return this.views.filter((row) => row instanceof JobRow);
  }

  get size() {
    return this.#items.length;
  }

  /** @param {Section} section @param {TableColumns} columns */
  show({ items, total }, columns) {
    this.#items = items;
    this.#body.hidden = items.length === 0;
    if (this.#head instanceof HTMLElement) this.#head.hidden = items.length === 0;
    setText(this.#count, total === null ? "" : total > items.length ? `${count(items.length)} of ${count(total)}` : count(total));
    this.sort(columns);
  }

  /** @param {TableColumns} columns */
  sort(columns) {
    this.#rows.show(columns.sorted(this.#items));
  }
}

// --- table columns: Which columns the table shows, and by which its rows are sorted; this browser remembers the
// former.

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

class TableColumns {
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
