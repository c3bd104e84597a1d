/**
 * Search in a log of any length, done by the server piece by piece; and in the logs of all ranks at once.
 *
 * @typedef {import("./log-link.js").Place} Place
 * @typedef {object} Viewer
 * @property {() => import("./log-feed.js").Source} source
 * @property {() => number} place byte at the top of what is seen
 * @property {(place: Place) => Promise<void>} goTo
 */
import { searchLog, searchLogs } from "./job-api.js";
import { byId, h, setText } from "./dom.js";
import { bytes } from "./format.js";

export class LogSearch {
  #jobId;
  #viewer;
  #query = /** @type {HTMLInputElement} */ (byId("log-query"));
  #found = byId("log-found");
  #list = byId("log-matches");
  /** @type {number | null} byte of the match that is shown */
  #at = null;
  #searches = 0;

  /**
   * @param {string} jobId
   * @param {Viewer} viewer
   */
  constructor(jobId, viewer) {
    this.#jobId = jobId;
    this.#viewer = viewer;
    byId("log-search").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#go(false);
    });
    byId("log-previous").addEventListener("click", () => void this.#go(true));
    byId("log-everywhere").addEventListener("click", () => void this.#everywhere());
    this.#query.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !event.shiftKey) return;
      event.preventDefault();
      void this.#go(true);
    });
    this.#query.addEventListener("input", () => this.reset());
  }

  /** Another log is looked at. */
  moved() {
    this.#searches += 1;
    this.#at = null;
    setText(this.#found, "");
  }

  /** Another text: what was found is no more. */
  reset() {
    this.moved();
    this.#list.replaceChildren();
    this.highlight();
  }

  /** Make every rendered match stand out, where the browser can do that without touching the text. */
  highlight() {
    const registry = globalThis.CSS?.highlights;
    if (!registry) return;
    const query = this.#query.value;
    const ranges = query ? rangesOf(byId("log-lines"), query) : [];
    registry.set("log-match", new Highlight(...ranges));
  }

  /**
   * On to the next match, or back to the one before; from the end it goes on at the beginning, and the reverse.
   *
   * @param {boolean} backwards
   */
  async #go(backwards) {
    const q = this.#query.value;
    if (!q) return;
    const search = ++this.#searches;
    const here = this.#at ?? this.#viewer.place();
    const from = backwards ? here : this.#at === null ? here : here + 1;
    try {
      const match = (await this.#find(search, q, from, backwards)) ?? (await this.#find(search, q, null, backwards));
      if (search !== this.#searches) return;
      setText(this.#found, match ? `at ${bytes(match.offset)}` : "Not found");
      if (!match) return;
      const place = { ...this.#viewer.source(), offset: match.offset };
      await this.#viewer.goTo(place);
      this.#at = match.offset;
    } catch (error) {
      setText(this.#found, error instanceof Error ? error.message : String(error));
    }
  }

  /**
   * One match, asked for as often as the server stops on the way.
   *
   * @param {number} search
   * @param {string} q
   * @param {number | null} from null: from the end of the log where the search begins
   * @param {boolean} backwards
   */
  async #find(search, q, from, backwards) {
    for (;;) {
      const { items, next, size } = await searchLog(this.#jobId, { ...this.#viewer.source(), q, from, backwards, limit: 1 });
      if (items.length) return items[0];
      if (next === null || search !== this.#searches) return null;
      setText(this.#found, `Searched ${bytes(backwards ? size - next : next)} of ${bytes(size)} …`);
      from = next;
    }
  }

  async #everywhere() {
    const q = this.#query.value;
    if (!q) return;
    this.reset();
    const search = this.#searches;
    const { attempt } = this.#viewer.source();
    try {
      const logs = await searchLogs(this.#jobId, { q, attempt });
      if (search !== this.#searches) return;
      const hits = logs.filter(({ count }) => count > 0);
      const rest = logs.some(({ complete }) => !complete);
      setText(this.#found, hits.length ? `In ${hits.length} ${hits.length === 1 ? "log" : "logs"}` : rest ? "Not found so far" : "Not found");
      this.#list.replaceChildren(...hits.map((hit) => h("li", {}, this.#button(hit, attempt))));
    } catch (error) {
      setText(this.#found, error instanceof Error ? error.message : String(error));
    }
  }

  /**
   * @param {import("./job-api.js").RankMatches} hit
   * @param {number} attempt
   */
  #button({ rank, stream, count, complete, first }, attempt) {
    const often = `${count}${complete ? "" : " or more"} ${count === 1 && complete ? "match" : "matches"}`;
    const open = async () => {
      await this.#viewer.goTo({ rank, stream, attempt, offset: first.offset });
      this.#at = first.offset;
    };
    return h(
      "button",
      { type: "button", class: "quiet", onclick: () => void open() },
      h("strong", {}, `rank ${rank} · ${stream}`),
      h("span", { class: "muted" }, often),
      h("bdi", { class: "match-text" }, first.text),
    );
  }
}

/**
 * @param {HTMLElement} root
 * @param {string} query without capitals it finds both, as on the server
 */
function rangesOf(root, query) {
  const plain = query === query.toLowerCase() ? (/** @type {string} */ text) => text.toLowerCase() : (/** @type {string} */ text) => text;
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const ranges = [];
  while (texts.nextNode()) {
    const node = /** @type {Text} */ (texts.currentNode);
    const text = plain(node.data);
    if (text.length !== node.data.length) continue;
    for (let at = text.indexOf(query); at >= 0 && ranges.length < 2000; at = text.indexOf(query, at + query.length)) {
      ranges.push(new StaticRange({ startContainer: node, startOffset: at, endContainer: node, endOffset: at + query.length }));
    }
  }
  return ranges;
}
