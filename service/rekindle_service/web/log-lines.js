/**
 * The rendered part of one log: a bounded window of rows, kept in chunks that each know which bytes they show.
 *
 * A chunk is what is dropped when there is too much, and where paging goes on from.
 *
 * @typedef {{attempt: number, start: number, end: number}} Span bytes `start` to `end` of that attempt's log
 * @typedef {Span & {node: HTMLElement, lines: number, characters: number}} Chunk
 * @typedef {{node: HTMLElement, chunk: Chunk, length: number}} Shown
 */
import { h } from "./dom.js";
import { TerminalText, runs } from "./terminal-text.js";

export const MOST_LINES = 3000;
export const MOST_CHARACTERS = 1_000_000;
const CHUNK_BYTES = 32 * 1024;
/** A row that never ends must not keep its chunk open for ever. */
const CHUNK_BYTES_AT_MOST = 128 * 1024;

export class LogLines {
  #container;
  #linkTo;
  /** @type {TerminalText | null} none before the first output */
  #terminal = null;
  /** @type {Chunk[]} */
  #chunks = [];
  /** @type {Map<number, Shown>} rows that may still change, by row id */
  #shown = new Map();

  /**
   * @param {HTMLElement} container
   * @param {(attempt: number, offset: number) => string} linkTo address of the row that begins there
   */
  constructor(container, linkTo) {
    this.#container = container;
    this.#linkTo = linkTo;
    container.addEventListener("pointerover", ({ target }) => {
      const row = target instanceof Element ? target.closest(".log-line") : null;
      if (row) this.#offerLink(/** @type {HTMLElement} */ (row));
    });
  }

  get oldest() {
    return this.#chunks.at(0);
  }

  get newest() {
    return this.#chunks.at(-1);
  }

  get empty() {
    return this.#chunks.length === 0;
  }

  clear() {
    this.#container.replaceChildren();
    this.#chunks = [];
    this.restart();
  }

  /** What is appended next does not go on from the row that was written last. */
  restart() {
    this.#terminal = null;
    this.#shown.clear();
  }

  /**
   * A line of the page's own between two pieces of output, after which the terminal starts afresh.
   *
   * @param {string} text
   * @param {number} attempt the one whose output follows
   */
  mark(text, attempt) {
    this.restart();
    const chunk = this.#addChunk({ attempt, start: 0, end: 0 });
    chunk.node.append(h("div", { class: "log-mark" }, text));
    chunk.lines = 1;
  }

  /**
   * Add output at the end; the oldest is dropped where it gets too much.
   *
   * @param {string} text
   * @param {Span} span
   */
  append(text, span) {
    this.#terminal ??= new TerminalText(span.start);
    const chunk = this.#chunkFor(span, this.#terminal.settled);
    chunk.end = span.end;
    for (const row of this.#terminal.write(text)) this.#show(row, chunk);
    this.#forgetFinished(this.#terminal);
    while (this.#tooMuch()) this.#chunks.shift()?.node.remove();
  }

  /**
   * Add whole lines before everything else; the newest is dropped where it gets too much.
   *
   * @param {string} text
   * @param {Span} span
   */
  prepend(text, span) {
    const chunk = { ...span, node: h("div", { class: "log-chunk" }), lines: 0, characters: 0 };
    for (const row of new TerminalText(span.start).write(text)) this.#addRow(row, chunk);
    this.#container.prepend(chunk.node);
    this.#chunks.unshift(chunk);
    while (this.#tooMuch()) this.#chunks.pop()?.node.remove();
  }

  /**
   * The row that shows byte `offset` of an attempt's log, if it is rendered.
   *
   * @param {number} attempt
   * @param {number} offset
   * @returns {HTMLElement | undefined}
   */
  rowAt(attempt, offset) {
    const chunk = this.#chunks.find((each) => each.attempt === attempt && each.start <= offset && offset < each.end);
    const rows = /** @type {HTMLElement[]} */ ([...(chunk?.node.children ?? [])]);
    return rows.findLast((row) => row.dataset.offset !== undefined && Number(row.dataset.offset) <= offset) ?? rows[0];
  }

  /** @returns {HTMLElement | undefined} */
  get lastRow() {
    return /** @type {HTMLElement | undefined} */ (this.newest?.node.lastElementChild ?? undefined);
  }

  /**
   * Make one row stand out, and no other.
   *
   * @param {HTMLElement | undefined} row
   */
  emphasise(row) {
    this.#container.querySelector(".marked")?.classList.remove("marked");
    if (!row) return;
    row.classList.add("marked");
    this.#offerLink(row);
  }

  /**
   * A link to the row, made when it is wanted: for thousands of rows it would be half of the work.
   *
   * @param {HTMLElement} row
   */
  #offerLink(row) {
    if (row.querySelector(".line-link")) return;
    const chunk = this.#chunks.find(({ node }) => node === row.parentNode);
    if (!chunk) return;
    const href = this.#linkTo(chunk.attempt, Number(row.dataset.offset));
    row.prepend(h("a", { class: "line-link", href, tabindex: -1, "aria-label": "Link to this line" }));
  }

  /**
   * Which byte is shown at `top` pixels below the beginning of all chunks, about.
   *
   * @param {number} top
   * @returns {{attempt: number, offset: number} | null}
   */
  placeAt(top) {
    const beginning = this.#chunks[0]?.node.offsetTop ?? 0;
    const chunk = this.#chunks.find(({ node }) => node.offsetTop - beginning + node.offsetHeight > top) ?? this.newest;
    if (!chunk) return null;
    const share = (top - (chunk.node.offsetTop - beginning)) / Math.max(1, chunk.node.offsetHeight);
    const within = Math.min(1, Math.max(0, share)) * (chunk.end - chunk.start);
    return { attempt: chunk.attempt, offset: Math.floor(chunk.start + within) };
  }

  /**
   * @param {Span} span
   * @param {boolean} settled
   */
  #chunkFor(span, settled) {
    const last = this.newest;
    if (!last || last.attempt !== span.attempt) return this.#addChunk(span);
    const size = last.end - last.start;
    const full = size >= CHUNK_BYTES_AT_MOST || (size >= CHUNK_BYTES && settled);
    return full ? this.#addChunk(span) : last;
  }

  /** @param {Span} span */
  #addChunk(span) {
    const chunk = { ...span, node: h("div", { class: "log-chunk" }), lines: 0, characters: 0 };
    this.#chunks.push(chunk);
    this.#container.append(chunk.node);
    return chunk;
  }

  /**
   * @param {import("./terminal-text.js").Row} row
   * @param {Chunk} chunk for a row that is not there yet
   */
  #show(row, chunk) {
    const shown = this.#shown.get(row.id);
    if (!shown) {
      this.#shown.set(row.id, this.#addRow(row, chunk));
      return;
    }
    render(row, shown.node);
    shown.chunk.characters += row.cells.length - shown.length;
    shown.length = row.cells.length;
  }

  /** @param {TerminalText} terminal */
  #forgetFinished(terminal) {
    for (const id of this.#shown.keys()) if (!terminal.isLive(id)) this.#shown.delete(id);
  }

  #tooMuch() {
    const sum = (/** @type {"lines" | "characters"} */ what) => this.#chunks.reduce((total, chunk) => total + chunk[what], 0);
    return this.#chunks.length > 1 && (sum("lines") > MOST_LINES || sum("characters") > MOST_CHARACTERS);
  }

  /**
   * @param {import("./terminal-text.js").Row} row
   * @param {Chunk} chunk
   * @returns {Shown}
   */
  #addRow(row, chunk) {
    const node = h("div", { class: "log-line", "data-offset": row.start });
    render(row, node);
    chunk.node.append(node);
    chunk.lines += 1;
    chunk.characters += row.cells.length;
    return { node, chunk, length: row.cells.length };
  }
}

/**
 * @param {import("./terminal-text.js").Row} row
 * @param {HTMLElement} node
 */
function render(row, node) {
  node.replaceChildren(...runs(row).map(({ text, style }) => (style ? h("span", { class: style }, text) : text)));
}
