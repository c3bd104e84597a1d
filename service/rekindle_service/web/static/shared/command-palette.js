/**
 * The palette (Ctrl-K): type some letters and go to a page, a job or an experiment.
 *
 * @typedef {{label: string, under: string, url: string}} Place
 */
import { call, experimentUrl, jobUrl, messageOf } from "./api.js";
import { h, patchChildren, setText } from "./dom.js";
import { stateWord } from "./job-state.js";
import { registerKeys } from "./keys.js";
import { latestWins } from "./timing.js";

const MAX_FOUND = 8;

class Palette {
  #input = h("input", { type: "search", role: "combobox", "aria-label": "Go to", "aria-expanded": "true", "aria-controls": "palette-list", placeholder: "Page, job or experiment; also a filter as in state:failed", autocomplete: "off", spellcheck: "false", maxlength: 1000 });
  #list = h("ul", { id: "palette-list", role: "listbox", "aria-label": "Places" });
  #status = h("p", { class: "muted remark", role: "status" });
  #dialog = h("dialog", { class: "palette", "aria-label": "Go to" }, this.#input, this.#list, this.#status);
  /** @type {Place[]} */
  #places = [];
  #chosen = 0;
  /** What the places that are shown were searched for. */
  #words = "";
  #search = latestWins(() => findPlaces(this.#input.value.trim()), (found) => this.#show(found));

  constructor() {
    document.body.append(this.#dialog);
    this.#input.addEventListener("input", () => void this.#refresh());
    this.#dialog.addEventListener("keydown", (event) => this.#pressed(event));
    this.#list.addEventListener("click", ({ target }) => target instanceof Element && this.#go(Number(target.closest("li")?.dataset.index)));
  }

  toggle() {
    if (this.#dialog.open) return this.#dialog.close();
    this.#input.value = "";
    this.#dialog.showModal();
    void this.#refresh();
  }

  async #refresh() {
    await this.#search().then(() => setText(this.#status, this.#places.length ? "" : "Nothing found")).catch((error) => setText(this.#status, messageOf(error)));
  }

  /** @param {{words: string, places: Place[]}} found */
  #show({ words, places }) {
    [this.#words, this.#places] = [words, places];
    this.#choose(0);
  }

  /** @param {number} index */
  #choose(index) {
    this.#chosen = Math.max(0, Math.min(index, this.#places.length - 1));
    const options = this.#places.map(({ label, under }, number) =>
      h("li", { id: `place-${number}`, role: "option", "aria-selected": String(number === this.#chosen), "data-index": number }, h("bdi", {}, label), h("span", { class: "muted" }, under)),
    );
    patchChildren(this.#list, options);
    if (options.length) this.#input.setAttribute("aria-activedescendant", `place-${this.#chosen}`);
    else this.#input.removeAttribute("aria-activedescendant");
  }

  /** @param {KeyboardEvent} event */
  #pressed(event) {
    const moves = /** @type {Record<string, number>} */ ({ ArrowDown: 1, ArrowUp: -1 });
    if (event.key in moves) this.#choose(this.#chosen + moves[event.key]);
    else if (event.key === "Enter") void this.#enter();
    else return;
    event.preventDefault();
  }

  /** Who types faster than the server answers goes to what they have typed. */
  async #enter() {
    if (this.#words !== this.#input.value.trim()) await this.#refresh();
    this.#go(this.#chosen);
  }

  /** @param {number} index */
  #go(index) {
    const place = this.#places[index];
    if (place) location.assign(place.url);
  }
}

const API_PAGE = { label: "REST API", under: "page", url: "/docs/api" };

/** The pages in the header, and that of the API. @returns {Place[]} */
const pages = () => [...[...document.querySelectorAll(".pages a")].map((link) => ({ label: link.textContent?.trim() ?? "", under: "page", url: link.getAttribute("href") ?? "/" })), API_PAGE];

/** @param {string} words */
async function findPlaces(words) {
  const matches = (/** @type {{label: string}} */ { label }) => label.toLowerCase().includes(words.toLowerCase());
  if (!words) return { words, places: pages() };
  const [jobs, experiments] = await Promise.all([call("GET /jobs", { q: words, limit: MAX_FOUND }), call("GET /experiments", { limit: 50 })]);
  const places = [
    ...pages().filter(matches),
    ...jobs.items.map((job) => ({ label: job.name, under: `#${job.number} · ${stateWord(job)}`, url: jobUrl(job.id) })),
    ...experiments.items.map(({ id, name }) => ({ label: name, under: "experiment", url: experimentUrl(id) })).filter(matches),
  ];
  return { words, places: places.slice(0, 2 * MAX_FOUND) };
}

/** @type {Palette | undefined} */
let palette;
addEventListener("keydown", (event) => {
  if (event.key !== "k" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
  if (document.querySelector("dialog[open]:not(.palette)")) return;
  event.preventDefault();
  palette ??= new Palette();
  palette.toggle();
});
registerKeys("Palette", {
  "Ctrl k": ["open or close it, on every page", null],
  "↑ ↓": ["choose another place", null],
  Enter: ["go to the chosen place", null],
});
