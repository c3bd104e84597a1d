/** Which metrics are drawn: boxes to tick, with a search where there are many (a script may log them by the thousand). */
import { arrange, byId, h, setText } from "./dom.js";
import { count } from "./format.js";

const SHOWN_AT_FIRST = 2;
/** More boxes than this are found by their name. */
const MOST_LISTED = 40;
/** More charts than this no page can keep up to date. */
const MOST_CHARTS = 24;
/** As many are ticked without looking for them, so the list stands open. */
const FEW = 12;

export class MetricPicker {
  #onChange;
  #chooser = /** @type {HTMLDetailsElement} */ (byId("metric-chooser"));
  #filter = /** @type {HTMLInputElement} */ (byId("metric-filter"));
  /** @type {string[]} */
  #names = [];
  /** @type {Set<string>} */
  #chosen = new Set();
  #touched = false;
  /** @type {Map<string, {label: HTMLElement, box: HTMLInputElement}>} */
  #boxes = new Map();

  /** @param {() => void} onChange another choice was made */
  constructor(onChange) {
    this.#onChange = onChange;
    this.#filter.addEventListener("input", () => this.#draw());
  }

  /** @returns {string[]} in the order of all names */
  get chosen() {
    return this.#names.filter((name) => this.#chosen.has(name));
  }

  /** @param {string[]} names of all metrics, the most telling first */
  show(names) {
    if (names.length === this.#names.length && names.every((name, index) => name === this.#names[index])) return;
    if (!this.#names.length) this.#chooser.open = names.length <= FEW;
    this.#names = names;
    if (!this.#touched) this.#chosen = new Set(names.slice(0, SHOWN_AT_FIRST));
    this.#draw();
  }

  #draw() {
    const wanted = this.#filter.value.trim().toLowerCase();
    const found = this.#names.filter((name) => name.toLowerCase().includes(wanted));
    const listed = [...found.filter((name) => this.#chosen.has(name)), ...found.filter((name) => !this.#chosen.has(name))];
    const shown = found.length > MOST_LISTED ? listed.slice(0, MOST_LISTED) : found;
    this.#chooser.hidden = this.#names.length <= SHOWN_AT_FIRST;
    this.#filter.hidden = this.#names.length <= FEW;
    setText(byId("metric-chosen"), `${count(this.#chosen.size)} of ${count(this.#names.length)} metrics shown`);
    arrange(byId("metric-picker"), shown.map((name) => this.#box(name)));
    const rest = found.length - shown.length;
    setText(byId("metric-rest"), rest ? `… and ${count(rest)} more: type a part of a name` : found.length ? "" : "No metric has this in its name.");
  }

  /** @param {string} name */
  #box(name) {
    const known = this.#boxes.get(name) ?? this.#newBox(name);
    this.#boxes.set(name, known);
    known.box.checked = this.#chosen.has(name);
    known.box.disabled = !known.box.checked && this.#chosen.size >= MOST_CHARTS;
    return known.label;
  }

  /** @param {string} name */
  #newBox(name) {
    const box = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox" }));
    box.addEventListener("change", () => {
      this.#touched = true;
      if (box.checked) this.#chosen.add(name);
      else this.#chosen.delete(name);
      this.#draw();
      this.#onChange();
    });
    return { box, label: h("label", {}, box, h("bdi", {}, name)) };
  }
}
