/**
 * Search in a log of any length, done by the server in several requests; in the logs of all ranks at once; and how many
 * matches each attempt has.
 *
 * @import { LogMatches, RankMatches } from "../shared/api-types.d.ts"
 * @import { LogLocation } from "./log-permalink.js"
 * @typedef {object} Viewer
 * @property {() => import("./log-window.js").Source} source
 * @property {() => number} offset byte at the top of the visible part
 * @property {() => {rank?: number, stream?: string}} scope which logs of an attempt are shown; undefined: all
 * @property {() => number} latest number of the latest attempt
 * @property {(location: LogLocation) => Promise<void>} goTo
 * @property {() => Promise<void>} filter only lines with a match are to be shown
 */
import { call, messageOf } from "../shared/api.js";
import { byId, h, setText } from "../shared/dom.js";
import { bytes, count, counted } from "../shared/format.js";

const MAX_HIGHLIGHTS = 2000;
/** Matches that are counted, at most. */
const MAX_COUNTED = 10_000;

export class LogSearch {
  #jobId;
  #viewer;
  #query = byId("log-query", HTMLInputElement);
  #result = byId("log-found");
  #attempts = byId("log-attempts");
  #list = byId("log-matches");
  #regex = byId("log-regex");
  #filtering = false;
  /** @type {number[] | null} bytes of all matches, once they have been counted */
  #matches = null;
  /** @type {number | null} byte of the match that is shown */
  #current = null;
  #searches = 0;

  /** @param {string} jobId @param {Viewer} viewer */
  constructor(jobId, viewer) {
    this.#jobId = jobId;
    this.#viewer = viewer;
    byId("log-search").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#next(false);
    });
    byId("log-previous").addEventListener("click", () => void this.#next(true));
    byId("log-everywhere").addEventListener("click", () => void this.#searchAllRanks());
    this.#query.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !event.shiftKey) return;
      event.preventDefault();
      void this.#next(true);
    });
    this.#query.addEventListener("input", () => this.#reset());
    this.#regex.addEventListener("click", () => {
      this.#regex.setAttribute("aria-pressed", String(!this.#isRegex));
      this.#reset();
    });
  }

  get #isRegex() {
    return this.#regex.getAttribute("aria-pressed") === "true";
  }

  /** Which lines are shown while the search filters. */
  get filter() {
    return { q: this.#query.value, regex: this.#isRegex };
  }

  /** Show only lines with a match, instead of going from one to the next. @param {boolean} filtering */
  setFiltering(filtering) {
    this.#filtering = filtering;
    this.#query.placeholder = filtering ? "Show only lines with" : "Search this log";
    setText(byId("log-next"), filtering ? "Filter" : "Next");
    byId("log-previous").hidden = byId("log-everywhere").hidden = byId("log-numbers").hidden = filtering;
  }

  /** Another log is shown. */
  onSourceChange() {
    this.#searches += 1;
    this.#current = null;
    this.#matches = null;
    setText(this.#result, "");
    this.#attempts.replaceChildren();
  }

  /** Another text: earlier matches do not count. */
  #reset() {
    this.onSourceChange();
    this.#list.replaceChildren();
    this.highlight();
  }

  /** Highlight every rendered match, where the browser can do that without changing the text. */
  highlight() {
    const registry = globalThis.CSS?.highlights;
    if (!registry) return;
    const query = this.#isRegex ? "" : this.#query.value;
    registry.set("log-match", new Highlight(...(query ? rangesOf(byId("log-lines"), query) : [])));
  }

  /** To the next or the previous match; the search wraps around at either end. @param {boolean} backwards */
  async #next(backwards) {
    const q = this.#query.value;
    const search = ++this.#searches;
    if (!q || this.#filtering) this.#attempts.replaceChildren();
    if (this.#filtering) await this.#viewer.filter();
    if (!q) return;
    if (this.#filtering) return this.#countByAttempt(search, q);
    const here = this.#current ?? this.#viewer.offset();
    const from = backwards || this.#current === null ? here : here + 1;
    try {
      const match = (await this.#find(search, q, from, backwards)) ?? (await this.#find(search, q, null, backwards));
      if (search !== this.#searches) return;
      setText(this.#result, match ? `at ${bytes(match.offset)}` : "Not found");
      void this.#countByAttempt(search, q);
      if (!match) return;
      await this.#viewer.goTo({ ...this.#viewer.source(), offset: match.offset });
      this.#current = match.offset;
      await this.#count(search, q);
    } catch (error) {
      setText(this.#result, messageOf(error));
    }
  }

  /** Show which of how many matches is the current one. @param {number} search @param {string} q */
  async #count(search, q) {
    const known = this.#matches ?? [];
    for (let from = this.#matches === null ? 0 : null; from !== null && known.length < MAX_COUNTED; ) {
      const values = { job_id: this.#jobId, ...this.#viewer.source(), q, from, regex: this.#isRegex, limit: 1000 };
      const { items, next } = await call("GET /jobs/{job_id}/ranks/{rank}/log/search", values);
      if (search !== this.#searches) return;
      known.push(...items.map(({ offset }) => offset));
      from = next;
    }
    this.#matches = known;
    const index = known.findIndex((offset) => offset === this.#current);
    if (index >= 0) setText(this.#result, `${count(index + 1)} of ${count(known.length)}${known.length < MAX_COUNTED ? "" : "+"}`);
  }

  /**
   * One match, with as many requests as the server needs.
   *
   * @param {number} search @param {string} q
   * @param {number | null} from null: from the end of the log where the search starts
   * @param {boolean} backwards
   */
  async #find(search, q, from, backwards) {
    for (;;) {
      const values = { job_id: this.#jobId, ...this.#viewer.source(), q, from, backwards, regex: this.#isRegex, limit: 1 };
      const { items, next, size } = await call("GET /jobs/{job_id}/ranks/{rank}/log/search", values);
      if (items.length) return items[0];
      if (next === null || search !== this.#searches) return null;
      setText(this.#result, `Searched ${bytes(backwards ? size - next : next)} of ${bytes(size)} …`);
      from = next;
    }
  }

  /** How many matches each attempt has in the logs that are shown. @param {number} search @param {string} q */
  async #countByAttempt(search, q) {
    if (this.#viewer.latest() < 2) return;
    const values = { job_id: this.#jobId, q, regex: this.#isRegex, ...this.#viewer.scope() };
    const found = await call("GET /jobs/{job_id}/logs/search", values).catch(() => null);
    if (found && search === this.#searches) this.#showAttempts(found);
  }

  async #searchAllRanks() {
    const q = this.#query.value;
    if (!q) return;
    this.#reset();
    const search = this.#searches;
    try {
      const found = await call("GET /jobs/{job_id}/logs/search", { job_id: this.#jobId, q, regex: this.#isRegex });
      if (search !== this.#searches) return;
      const hits = found.items.filter(({ count }) => count > 0);
      const incomplete = found.attempts.some(({ complete }) => !complete);
      setText(this.#result, hits.length ? `In ${counted(hits.length, "log")}` : incomplete ? "Not found so far" : "Not found");
      this.#list.replaceChildren(...hits.map((hit) => h("li", {}, this.#button(hit, found))));
      this.#showAttempts(found);
    } catch (error) {
      setText(this.#result, messageOf(error));
    }
  }

  /** "0 in attempt 2, 9 in attempt 1"; a number leads to the first match there. @param {LogMatches} found */
  #showAttempts(found) {
    if (found.attempts.length < 2) return this.#attempts.replaceChildren();
    const parts = found.attempts.flatMap(({ attempt, count, complete }, index) => {
      const text = `${complete || count ? counts(count, complete) : "not searched"} in attempt ${attempt}`;
      const hit = found.items.find((item) => item.attempt === attempt && item.first);
      const part = hit ? h("button", { type: "button", class: "link", onclick: () => void this.#open(hit, found) }, text) : text;
      return index ? [", ", part] : [part];
    });
    this.#attempts.replaceChildren(...parts);
  }

  /** Show the first match of a log. @param {RankMatches} hit @param {LogMatches} found the search that it belongs to */
  async #open({ attempt, rank, stream, first }, found) {
    const offset = first?.offset ?? 0;
    await this.#viewer.goTo({ rank, stream, attempt, offset });
    this.#current = offset;
    this.#showAttempts(found);
  }

  /** @param {RankMatches} hit @param {LogMatches} found */
  #button(hit, found) {
    const { attempt, rank, stream, count, complete, first } = hit;
    const log = `rank ${rank} · ${stream}`;
    return h(
      "button",
      { type: "button", class: "quiet", onclick: () => void this.#open(hit, found) },
      h("strong", {}, found.attempts.length > 1 ? `attempt ${attempt} · ${log}` : log),
      h("span", { class: "muted" }, complete ? counted(count, "match", "matches") : `${counts(count, complete)} matches`),
      h("bdi", { class: "match-text" }, first?.text),
    );
  }
}

/** @param {number} number @param {boolean} complete */
const counts = (number, complete) => (complete ? count(number) : `${count(number)} or more`);

/** @param {HTMLElement} root @param {string} query without capitals it finds both, as on the server */
function rangesOf(root, query) {
  const fold = query === query.toLowerCase() ? (/** @type {string} */ text) => text.toLowerCase() : (/** @type {string} */ text) => text;
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const ranges = [];
  while (texts.nextNode()) {
    const node = /** @type {Text} */ (texts.currentNode);
    const text = fold(node.data);
    if (text.length !== node.data.length) continue;
    for (let at = text.indexOf(query); at >= 0 && ranges.length < MAX_HIGHLIGHTS; at = text.indexOf(query, at + query.length)) {
      ranges.push(new StaticRange({ startContainer: node, startOffset: at, endContainer: node, endOffset: at + query.length }));
    }
  }
  return ranges;
}
