/**
 * The rendered part of one log: a bounded window of rows, kept in chunks that each know which bytes they show.
 *
 * A chunk is what is dropped when there is too much, and where "load earlier" goes on from.
 *
 * @typedef {{attempt: number, start: number, end: number}} Span bytes `start` to `end` of that attempt's log
 * @typedef {Span & {node: HTMLElement, lines: number, characters: number}} Chunk
 * @typedef {{node: HTMLElement, chunk: Chunk, length: number}} Shown
 */
import { h } from "./dom.js";
import { TerminalText, runs } from "./terminal-text.js";

export const MOST_LINES = 5000;
export const MOST_CHARACTERS = 1_000_000;
const CHUNK_BYTES = 32 * 1024;
/** A row that never ends must not keep its chunk open for ever. */
const CHUNK_BYTES_AT_MOST = 128 * 1024;

export class LogLines {
  #container;
  #terminal = new TerminalText();
  /** @type {Chunk[]} */
  #chunks = [];
  /** @type {Map<number, Shown>} rows that may still change, by row id */
  #shown = new Map();

  /** @param {HTMLElement} container */
  constructor(container) {
    this.#container = container;
  }

  /** @returns {Chunk | undefined} */
  get oldest() {
    return this.#chunks[0];
  }

  get empty() {
    return this.#chunks.length === 0;
  }

  clear() {
    this.#container.replaceChildren();
    this.#chunks = [];
    this.#restart();
  }

  /**
   * A line of the page's own between two pieces of output, after which the terminal starts afresh.
   *
   * @param {string} text
   * @param {number} attempt the one whose output follows
   */
  mark(text, attempt) {
    this.#restart();
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
    const chunk = this.#chunkFor(span);
    chunk.end = span.end;
    for (const row of this.#terminal.write(text)) this.#show(row, chunk);
    this.#forgetFinished();
    while (this.#tooMuch()) this.#chunks.shift()?.node.remove();
  }

  /**
   * Add whole lines before everything else.
   *
   * @param {string} text
   * @param {Span} span
   * @returns {boolean} whether the newest rows had to go for it
   */
  prepend(text, span) {
    const chunk = { ...span, node: h("div", { class: "log-chunk" }), lines: 0, characters: 0 };
    for (const row of new TerminalText().write(text)) addRow(row, chunk);
    this.#container.prepend(chunk.node);
    this.#chunks.unshift(chunk);
    const before = this.#chunks.length;
    while (this.#tooMuch()) this.#chunks.pop()?.node.remove();
    return this.#chunks.length < before;
  }

  #restart() {
    this.#terminal = new TerminalText();
    this.#shown.clear();
  }

  /** @param {Span} span */
  #chunkFor(span) {
    const last = this.#chunks.at(-1);
    if (!last || last.attempt !== span.attempt) return this.#addChunk(span);
    const size = last.end - last.start;
    const full = size >= CHUNK_BYTES_AT_MOST || (size >= CHUNK_BYTES && this.#terminal.settled);
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
      this.#shown.set(row.id, addRow(row, chunk));
      return;
    }
    render(row, shown.node);
    shown.chunk.characters += row.cells.length - shown.length;
    shown.length = row.cells.length;
  }

  #forgetFinished() {
    for (const id of this.#shown.keys()) if (!this.#terminal.isLive(id)) this.#shown.delete(id);
  }

  #tooMuch() {
    const sum = (/** @type {"lines" | "characters"} */ what) => this.#chunks.reduce((total, chunk) => total + chunk[what], 0);
    return this.#chunks.length > 1 && (sum("lines") > MOST_LINES || sum("characters") > MOST_CHARACTERS);
  }
}

/**
 * @param {import("./terminal-text.js").Row} row
 * @param {Chunk} chunk
 * @returns {Shown}
 */
function addRow(row, chunk) {
  const node = h("div", { class: "log-line" });
  render(row, node);
  chunk.node.append(node);
  chunk.lines += 1;
  chunk.characters += row.cells.length;
  return { node, chunk, length: row.cells.length };
}

/**
 * @param {import("./terminal-text.js").Row} row
 * @param {HTMLElement} node
 */
function render(row, node) {
  node.replaceChildren(...runs(row).map(({ text, style }) => (style ? h("span", { class: style }, text) : text)));
}
