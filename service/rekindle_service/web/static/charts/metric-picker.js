/**
 * The controls of metric charts: which metrics are drawn (with a search, since a script may log thousands), over which
 * axis, how smooth, and on which scale.
 */
import { remember, remembered } from "../shared/browser-storage.js";
import { byId, h, reorderChildren, setText } from "../shared/dom.js";
import { count } from "../shared/format.js";

const SHOWN_AT_FIRST = 3;
/** So few cannot be chosen among. */
const ALWAYS_SHOWN = 2;
/** The axis that was chosen last, on any page. */
const AXIS_KEY = "chart-axis";
/** More boxes than this are found by their name. */
const MAX_LISTED = 40;
/** A page cannot keep more charts than this up to date. */
const MAX_CHARTS = 24;
/** Up to this number the list is open from the start and has no search. */
const FEW = 12;

/** @typedef {{axis: import("./chart-data.js").Axis, smoothing: number, logarithmic: boolean}} ChartStyle */

export class MetricPicker {
  #onChoice;
  #chooser = byId("metric-chooser", HTMLDetailsElement);
  #filter = byId("metric-filter", HTMLInputElement);
  #axis = byId("chart-axis", HTMLSelectElement);
  #smoothing = byId("chart-smoothing", HTMLInputElement);
  #log = byId("chart-log", HTMLInputElement);
  /** @type {string[]} */
  #names = [];
  /** @type {Set<string>} */
  #chosen = new Set();
  #touched = false;
  /** @type {Map<string, {label: HTMLElement, box: HTMLInputElement}>} */
  #boxes = new Map();

  /** @param {() => void} onChoice other metrics were chosen @param {() => void} onStyle they are drawn differently */
  constructor(onChoice, onStyle) {
    this.#onChoice = onChoice;
    const known = [...this.#axis.options].find(({ value }) => value === remembered(AXIS_KEY));
    if (known) this.#axis.value = known.value;
    this.#filter.addEventListener("input", () => this.#draw());
    this.#axis.addEventListener("input", () => remember(AXIS_KEY, this.#axis.value));
    for (const control of [this.#axis, this.#smoothing, this.#log]) control.addEventListener("input", onStyle);
  }

  /** @returns {string[]} in the order of all names */
  get chosen() {
    return this.#names.filter((name) => this.#chosen.has(name));
  }

  /** @returns {ChartStyle} */
  get style() {
    const axis = /** @type {ChartStyle["axis"]} */ (this.#axis.value);
    return { axis, smoothing: Number(this.#smoothing.value), logarithmic: this.#log.checked };
  }

  /** @param {string[]} names of all metrics, the most important first */
  show(names) {
    if (names.length === this.#names.length && names.every((name, index) => name === this.#names[index])) return;
    if (!this.#names.length) this.#chooser.open = names.length <= FEW;
    this.#names = names;
    if (!this.#touched) this.#chosen = new Set(names.slice(0, SHOWN_AT_FIRST));
    this.#draw();
  }

  #draw() {
    const query = this.#filter.value.trim().toLowerCase();
    const found = this.#names.filter((name) => name.toLowerCase().includes(query));
    const chosenFirst = [...found.filter((name) => this.#chosen.has(name)), ...found.filter((name) => !this.#chosen.has(name))];
    const shown = found.length > MAX_LISTED ? chosenFirst.slice(0, MAX_LISTED) : found;
    this.#chooser.hidden = this.#names.length <= ALWAYS_SHOWN;
    this.#filter.hidden = this.#names.length <= FEW;
    setText(byId("metric-chosen"), `${count(this.#chosen.size)} of ${count(this.#names.length)} metrics shown`);
    reorderChildren(byId("metric-picker"), shown.map((name) => this.#box(name)));
    const rest = found.length - shown.length;
    setText(byId("metric-rest"), rest ? `… and ${count(rest)} more: type a part of a name` : found.length ? "" : "No metric name contains this.");
  }

  /** @param {string} name */
  #box(name) {
    const known = this.#boxes.get(name) ?? this.#createBox(name);
    this.#boxes.set(name, known);
    known.box.checked = this.#chosen.has(name);
    known.box.disabled = !known.box.checked && this.#chosen.size >= MAX_CHARTS;
    return known.label;
  }

  /** @param {string} name */
  #createBox(name) {
    const box = h("input", { type: "checkbox" });
    box.addEventListener("change", () => {
      this.#touched = true;
      if (box.checked) this.#chosen.add(name);
      else this.#chosen.delete(name);
      this.#draw();
      this.#onChoice();
    });
    return { box, label: h("label", {}, box, h("bdi", {}, name)) };
  }
}
