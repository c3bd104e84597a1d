/**
 * What tables of results have in common: a swatch that hides its row, headings that sort, and marked best values.
 *
 * @typedef {import("./row-view.js").RowView} RowView
 */
import { h } from "../shared/dom.js";

/** The colour of a row, as a button that hides it and shows it again. @param {RowView} view @param {number} row */
export function swatch(view, row) {
  const { name, colour, isHidden, isOutside } = view.look(row);
  const node = h("span", { class: "swatch" });
  node.style.background = colour;
  const label = `Show ${name} in the charts`;
  const title = isOutside ? "Outside of a range on an axis" : isHidden ? "Show it in the charts" : "Hide it in the charts";
  return h("button", { type: "button", class: "row-toggle", disabled: isOutside, title, "aria-label": label, "aria-pressed": String(!isHidden), "data-row": row, "data-focus": `row-${row}` }, node);
}

/** A heading that sorts. @param {RowView} view @param {string} name @param {string | null} [style] @param {"col" | "row"} [scope] */
export function sortHeading(view, name, style = null, scope = "col") {
  const sorted = view.sort?.name === name ? (view.sort.descending ? "descending" : "ascending") : null;
  const button = h("button", { type: "button", class: "sort", "data-sort": name, "data-focus": `sort-${name}` }, h("bdi", {}, name));
  return h("th", { scope, class: style, "aria-sort": sorted }, button);
}

/** @param {string} text */
export const bestValue = (text) => h("strong", { class: "best", title: "best" }, text, h("span", { class: "hidden" }, " (best)"));

/**
 * Clicks that hide rows or sort them, and rows that the user points at: of any element with `data-row`.
 *
 * @param {HTMLElement} host a table or a chart @param {RowView} view @param {string} [clicked] what reacts to clicks: in a table its buttons
 */
export function listen(host, view, clicked = "button[data-row], button[data-sort]") {
  host.addEventListener("click", ({ target }) => {
    const node = target instanceof Element ? /** @type {HTMLElement | null} */ (target.closest(clicked)) : null;
    if (node?.dataset.sort !== undefined) view.sortBy(node.dataset.sort);
    else if (node) view.toggle(Number(node.dataset.row));
  });
  host.addEventListener("pointerover", ({ target }) => {
    const row = target instanceof Element ? /** @type {HTMLElement | null} */ (target.closest("[data-row]")) : null;
    view.highlight(row ? Number(row.dataset.row) : null);
  });
  host.addEventListener("pointerleave", () => view.highlight(null));
}
