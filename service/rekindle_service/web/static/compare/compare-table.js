/**
 * The comparison of jobs as a table: a column for each job, a line for each parameter or result.
 *
 * @import { JobPublic as Job } from "../shared/api-types.d.ts"
 * @typedef {import("../results/row-view.js").RowView} RowView
 * @typedef {import("./compare-lines.js").ComparedLine} ComparedLine
 */
import { bestValue, sortHeading, swatch } from "../results/row-parts.js";
import { jobUrl } from "../shared/api.js";
import { h, patchChildren } from "../shared/dom.js";
import { NONE } from "../shared/format.js";
import { badge, stateWord } from "../shared/job-state.js";

/**
 * @param {HTMLElement} head @param {Job[]} jobs @param {number[]} order of their columns @param {RowView} view
 * @param {(id: string) => void} remove
 */
export function showJobs(head, jobs, order, view, remove) {
  const corner = h("th", { scope: "col" }, h("span", { class: "hidden" }, "Parameter or result"));
  patchChildren(head, [h("tr", {}, corner, ...order.map((index) => heading(jobs[index], index, view, () => remove(jobs[index].id))))]);
}

/** @param {Job} job @param {number} index @param {RowView} view @param {() => void} onclick */
function heading(job, index, view, onclick) {
  const { id, number, name } = job;
  const link = h("a", { href: jobUrl(id), title: name, "data-focus": `job-${id}` }, h("bdi", {}, name));
  const label = `Remove ${name} from the comparison`;
  const remove = h("button", { type: "button", class: "quiet", "aria-label": label, "data-focus": `remove-${id}`, onclick }, "Remove");
  const below = h("span", { class: "compared" }, `#${number} `, badge(stateWord(job)), remove);
  return h("th", { scope: "col", "data-row": index, class: view.look(index).isHidden && "job-hidden" }, swatch(view, index), " ", link, below);
}

/** @param {HTMLElement} body @param {ComparedLine[]} lines @param {number[]} order of the columns @param {RowView} view */
export function showLines(body, lines, order, view) {
  const nothing = order.length > 1 ? "The jobs have the same parameters." : "Add a second job to compare with.";
  const cell = (/** @type {ComparedLine} */ { texts, best }, /** @type {number} */ job) =>
    h("td", { "data-row": job }, best.includes(job) ? bestValue(texts[job]) : texts[job] ? h("bdi", {}, texts[job]) : NONE);
  const row = (/** @type {ComparedLine} */ line) =>
    h("tr", { class: line.differs && "differs" }, sortHeading(view, line.name, null, "row"), ...order.map((job) => cell(line, job)));
  patchChildren(body, lines.length ? lines.map(row) : [h("tr", {}, h("td", { colspan: order.length + 1, class: "muted" }, nothing))]);
}

/** Mark the column of the job that the user points at. @param {HTMLElement} table @param {RowView} view */
export function restyleTable(table, view) {
  for (const cell of table.querySelectorAll("[data-row]")) cell.classList.toggle("pointed", Number(cell.getAttribute("data-row")) === view.highlighted);
}
