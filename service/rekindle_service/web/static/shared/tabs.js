/** Tabs as in the ARIA pattern: one panel is shown, arrow keys, Home and End move between the tabs. */
import { byId } from "./dom.js";

/**
 * Make a tab list of an element whose tabs name their panels by `aria-controls`; the first tab is shown.
 *
 * @param {HTMLElement} list @returns {(tab: string) => void} shows the tab of that id
 */
export function makeTabs(list) {
  const tabs = /** @type {HTMLElement[]} */ ([...list.querySelectorAll("[role=tab]")]);
  const show = (/** @type {string} */ id) => tabs.forEach((tab) => mark(tab, tab.id === id));
  for (const tab of tabs) tab.addEventListener("click", () => show(tab.id));
  list.addEventListener("keydown", (event) => {
    const next = neighbour(tabs, event.key);
    if (!next) return;
    event.preventDefault();
    show(next.id);
    next.focus();
  });
  show(tabs[0].id);
  return show;
}

/** @param {HTMLElement} tab @param {boolean} chosen */
function mark(tab, chosen) {
  tab.setAttribute("aria-selected", String(chosen));
  tab.tabIndex = chosen ? 0 : -1;
  byId(tab.getAttribute("aria-controls") ?? "").hidden = !chosen;
}

/** The tab to which a key leads. @param {HTMLElement[]} tabs @param {string} key @returns {HTMLElement | undefined} */
function neighbour(tabs, key) {
  const index = tabs.findIndex((tab) => tab === document.activeElement);
  const targets = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: -1 };
  return key in targets ? tabs.at(targets[/** @type {keyof typeof targets} */ (key)] % tabs.length) : undefined;
}
