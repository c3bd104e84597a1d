/**
 * The rendered part of one log: a bounded window of rows, kept in chunks that each know which bytes they show.
 *
 * A chunk is the unit that is removed when the window gets too large, and where paging continues.
 *
 * @typedef {{attempt: number, start: number, end: number, line?: number | null}} Span bytes `start` to `end` of that
 * attempt's log, and the number of the first line where it is known
 * @typedef {Span & {node: HTMLElement, lines: number, characters: number}} Chunk
 * @typedef {{node: HTMLElement, chunk: Chunk, length: number}} RenderedRow
 */
import { h } from "../shared/dom.js";
import { TerminalEmulator, runs } from "./terminal-emulator.js";

const MAX_LINES = 3000;
const MIN_DIGITS = 4;
const MAX_CHARACTERS = 1_000_000;
const CHUNK_BYTES = 32 * 1024;
/** A row without end must not keep its chunk open for ever. */
const MAX_CHUNK_BYTES = 128 * 1024;

export class LogRenderer {
  #container;
  #linkTo;
  /** @type {TerminalEmulator | null} none before the first output */
  #terminal = null;
  /** @type {Chunk[]} */
  #chunks = [];
  /** @type {Map<number, RenderedRow>} rows that may still change, by row id */
  #liveRows = new Map();
  /** Of the largest line number that was rendered; the column of the numbers is as wide. */
  #digits = MIN_DIGITS;

  /**
   * @param {HTMLElement} container
   * @param {(attempt: number, offset: number) => string} linkTo URL of the row that starts there
   */
  constructor(container, linkTo) {
    this.#container = container;
    this.#linkTo = linkTo;
    container.addEventListener("pointerover", ({ target }) => {
      const row = target instanceof Element ? target.closest(".log-line") : null;
      if (row) this.#addLink(/** @type {HTMLElement} */ (row));
    });
  }

  get oldest() {
    return this.#chunks.at(0);
  }

  get latest() {
    return this.#chunks.at(-1);
  }

  clear() {
    this.#container.replaceChildren();
    this.#chunks = [];
    this.restart();
  }

  /** The next output does not continue the last row. */
  restart() {
    this.#terminal = null;
    this.#liveRows.clear();
  }

  /**
   * A line between the output of two attempts, or in place of output that was removed.
   *
   * @param {string} text @param {number} attempt the one that follows @param {number} [offset] where it continues
   */
  divider(text, attempt, offset = 0) {
    this.restart();
    const chunk = this.#addChunk({ attempt, start: offset, end: offset });
    chunk.node.append(h("div", { class: "log-divider" }, text));
    chunk.lines = 1;
  }

  /**
   * Add output at the end; the oldest is removed where the window gets too large.
   *
   * @param {string} text @param {Span} span
   */
  append(text, span) {
    this.#terminal ??= new TerminalEmulator(span.start, span.line);
    const chunk = this.#chunkFor(span, this.#terminal.atLineStart);
    chunk.end = span.end;
    for (const row of this.#terminal.write(text)) this.#update(row, chunk);
    this.#widen(this.#terminal.line);
    for (const id of this.#liveRows.keys()) if (!this.#terminal.isLive(id)) this.#liveRows.delete(id);
    while (this.#tooLarge()) this.#chunks.shift()?.node.remove();
  }

  /**
   * Add whole lines at the beginning; the latest is removed where the window gets too large.
   *
   * @param {string} text @param {Span} span
   */
  prepend(text, span) {
    const chunk = newChunk(span);
    const terminal = new TerminalEmulator(span.start, span.line);
    for (const row of terminal.write(text)) addRow(row, chunk);
    this.#widen(terminal.line);
    this.#container.prepend(chunk.node);
    this.#chunks.unshift(chunk);
    while (this.#tooLarge()) this.#chunks.pop()?.node.remove();
  }

  /**
   * A line before the oldest output, in place of what was removed.
   *
   * @param {string} text @param {number} attempt @param {number} offset where the removed part begins
   */
  prependDivider(text, attempt, offset) {
    const chunk = newChunk({ attempt, start: offset, end: offset });
    chunk.node.append(h("div", { class: "log-divider" }, text));
    chunk.lines = 1;
    this.#container.prepend(chunk.node);
    this.#chunks.unshift(chunk);
  }

  /**
   * The row that shows byte `offset` of an attempt's log, if it is rendered.
   *
   * @param {number} attempt @param {number} offset @returns {HTMLElement | undefined}
   */
  rowAt(attempt, offset) {
    const chunk = this.#chunks.find((each) => each.attempt === attempt && each.start <= offset && offset < each.end);
    const rows = /** @type {HTMLElement[]} */ ([...(chunk?.node.children ?? [])]);
    return rows.findLast((row) => row.dataset.offset !== undefined && Number(row.dataset.offset) <= offset) ?? rows[0];
  }

  /** The rows of an attempt that show no time yet, ascending. @param {number} attempt @returns {HTMLElement[]} */
  rowsWithoutTime(attempt) {
    const nodes = this.#chunks.filter((chunk) => chunk.attempt === attempt).map(({ node }) => node);
    return nodes.flatMap((node) => /** @type {HTMLElement[]} */ ([...node.querySelectorAll(".log-line:not([data-time])")]));
  }

  /** @returns {HTMLElement | undefined} */
  get lastRow() {
    return /** @type {HTMLElement | undefined} */ (this.latest?.node.lastElementChild ?? undefined);
  }

  /** Highlight one row, and no other. @param {HTMLElement | undefined} row */
  highlight(row) {
    this.#container.querySelector(".marked")?.classList.remove("marked");
    if (!row) return;
    row.classList.add("marked");
    this.#addLink(row);
  }

  /** The row that is highlighted; null for none. @returns {{attempt: number, offset: number} | null} */
  get marked() {
    const row = /** @type {HTMLElement | null} */ (this.#container.querySelector(".marked"));
    const chunk = this.#chunks.find(({ node }) => node === row?.parentNode);
    return row && chunk ? { attempt: chunk.attempt, offset: Number(row.dataset.offset) } : null;
  }

  /** Show one row, and no other, as that of the axis's cursor. @param {HTMLElement | undefined} row */
  point(row) {
    this.#container.querySelector(".pointed")?.classList.remove("pointed");
    row?.classList.add("pointed");
  }

  /**
   * A permalink to the row, created on demand: for thousands of rows it would be half of the work.
   *
   * @param {HTMLElement} row
   */
  #addLink(row) {
    if (row.querySelector(".line-link")) return;
    const chunk = this.#chunks.find(({ node }) => node === row.parentNode);
    if (!chunk) return;
    const href = this.#linkTo(chunk.attempt, Number(row.dataset.offset));
    row.prepend(h("a", { class: "line-link", href, tabindex: -1, "aria-label": "Link to this line" }));
  }

  /**
   * Which byte is shown, about, at `top` pixels below the beginning of all chunks.
   *
   * @param {number} top @returns {{attempt: number, offset: number} | null}
   */
  positionAt(top) {
    const beginning = this.#chunks[0]?.node.offsetTop ?? 0;
    const chunk = this.#chunks.find(({ node }) => node.offsetTop - beginning + node.offsetHeight > top) ?? this.latest;
    if (!chunk) return null;
    const share = (top - (chunk.node.offsetTop - beginning)) / Math.max(1, chunk.node.offsetHeight);
    const within = Math.min(1, Math.max(0, share)) * (chunk.end - chunk.start);
    return { attempt: chunk.attempt, offset: Math.floor(chunk.start + within) };
  }

  /** @param {Span} span @param {boolean} atLineStart */
  #chunkFor(span, atLineStart) {
    const last = this.latest;
    if (!last || last.attempt !== span.attempt) return this.#addChunk(span);
    const size = last.end - last.start;
    const full = size >= MAX_CHUNK_BYTES || (size >= CHUNK_BYTES && atLineStart);
    return full ? this.#addChunk(span) : last;
  }

  /** @param {Span} span */
  #addChunk(span) {
    const chunk = newChunk(span);
    this.#chunks.push(chunk);
    this.#container.append(chunk.node);
    return chunk;
  }

  /** @param {import("./terminal-emulator.js").Row} row @param {Chunk} chunk of a new row */
  #update(row, chunk) {
    const rendered = this.#liveRows.get(row.id);
    if (!rendered) {
      this.#liveRows.set(row.id, addRow(row, chunk));
      return;
    }
    render(row, rendered.node);
    rendered.chunk.characters += row.cells.length - rendered.length;
    rendered.length = row.cells.length;
  }

  /** @param {number | null} line the largest number, if it is known */
  #widen(line) {
    const digits = String(line ?? 0).length;
    if (digits <= this.#digits) return;
    this.#digits = digits;
    this.#container.style.setProperty("--digits", String(digits));
  }

  #tooLarge() {
    const sum = (/** @type {"lines" | "characters"} */ what) => this.#chunks.reduce((total, chunk) => total + chunk[what], 0);
    return this.#chunks.length > 1 && (sum("lines") > MAX_LINES || sum("characters") > MAX_CHARACTERS);
  }
}

/** @param {Span} span @returns {Chunk} */
const newChunk = (span) => ({ ...span, node: h("div", { class: "log-chunk" }), lines: 0, characters: 0 });

/** @param {import("./terminal-emulator.js").Row} row @param {Chunk} chunk @returns {RenderedRow} */
function addRow(row, chunk) {
  const node = h("div", { class: "log-line", "data-offset": row.start, "data-line": row.line });
  render(row, node);
  chunk.node.append(node);
  chunk.lines += 1;
  chunk.characters += row.cells.length;
  return { node, chunk, length: row.cells.length };
}

/** @param {import("./terminal-emulator.js").Row} row @param {HTMLElement} node */
function render(row, node) {
  node.replaceChildren(...runs(row).map(({ text, style }) => (style ? h("span", { class: style }, text) : text)));
}
