/**
 * A window on one rank's log, moved over its bytes without gap or repetition: the latest bytes come by the event stream
 * where they fit, all others by offset from the server, so the length of a log does not matter.
 *
 * @typedef {{rank: number, stream: string, attempt: number}} Source
 */
import { isNotFound, send } from "../shared/api.js";
import { bytes } from "../shared/format.js";

const TAIL_LINES = 500;
/** Fetched of new output at once. */
const CHUNK_BYTES = 64 * 1024;
/** Added by scrolling: a dozen screens. */
const PAGE_BYTES = 32 * 1024;
/** Shown before a position that was looked up. */
const LEAD_BYTES = 8 * 1024;
/** With more new output than this, the window jumps to the end. */
const MAX_CATCH_UP_BYTES = 1_000_000;

/** Another log was opened meanwhile: what this request returns must not be shown. */
class StaleRequest extends Error {}

export class LogWindow {
  #jobId;
  #renderer;
  /** @type {Source | null} */
  #source = null;
  /** Where the window ends. */
  #end = { attempt: 0, offset: 0 };
  /** Bytes of the source's log, as far as is known. */
  size = 0;
  /** The window has reached the end of the log, and has not been moved back since. */
  caughtUp = false;
  /** @type {Promise<void>} one step at a time, in the order of the calls */
  #queue = Promise.resolve();
  /** How often a log was opened: until now, and until the current step was enqueued. */
  #opened = 0;
  #openedBeforeStep = 0;

  /** @param {string} jobId @param {import("./log-renderer.js").LogRenderer} renderer */
  constructor(jobId, renderer) {
    this.#jobId = jobId;
    this.#renderer = renderer;
  }

  /** True where older output than what is shown can be fetched. */
  get hasOlder() {
    return (this.#renderer.oldest?.start ?? 0) > 0;
  }

  /** True where newer output than what is shown is known of. */
  get hasNewer() {
    return this.#end.attempt < (this.#source?.attempt ?? 0) || this.#end.offset < this.size;
  }

  /** Show the end of `source` and nothing else. @param {Source} source */
  open(source) {
    this.#begin(source);
    return this.#enqueue(() => this.#openTail(source));
  }

  /** Show `source` around byte `offset` and nothing else. @param {Source} source @param {number} offset */
  openAt(source, offset) {
    this.#begin(source);
    return this.#enqueue(() => this.#openAt(source, offset));
  }

  /**
   * Continue with a later attempt below what is shown.
   *
   * @param {number} attempt @param {boolean} following otherwise the new output is not fetched yet
   */
  switchAttempt(attempt, following) {
    if (!this.#source || attempt <= this.#source.attempt) return this.#queue;
    this.#source = { ...this.#source, attempt };
    this.size = 0;
    return following ? this.#enqueue(() => this.#catchUp()) : this.#queue;
  }

  /**
   * New bytes of the followed log.
   *
   * @param {{attempt: number, offset: number, next_offset: number, text: string}} event
   */
  onChunk(event) {
    return this.#enqueue(async () => {
      if (event.attempt !== this.#source?.attempt) return;
      this.#grow(event.next_offset);
      if (event.attempt === this.#end.attempt && event.next_offset <= this.#end.offset) return;
      if (event.attempt === this.#end.attempt && event.offset === this.#end.offset) this.#append(event.text, event.next_offset);
      else await this.#catchUp();
    });
  }

  /** New bytes that are not shown yet. @param {{attempt: number, next_offset: number}} event */
  recordSize(event) {
    if (event.attempt === this.#source?.attempt) this.#grow(event.next_offset);
  }

  /** Fetch what was written since the last byte shown. */
  catchUp() {
    return this.#enqueue(() => this.#catchUp());
  }

  /** Show one more page after the latest. */
  loadNewer() {
    return this.#enqueue(async () => void (await this.#loadNewer(PAGE_BYTES)));
  }

  /** Show one more page before the oldest; the latest is removed where the window gets too large. */
  loadOlder() {
    return this.#enqueue(async () => {
      const oldest = this.#renderer.oldest;
      if (!oldest || !this.#source || oldest.start === 0) return;
      const offset = Math.max(0, oldest.start - PAGE_BYTES);
      const page = await this.#read({ ...this.#source, attempt: oldest.attempt, offset, limit: oldest.start - offset });
      const start = Math.min(page.start, oldest.start);
      const data = page.data.subarray(0, oldest.start - start);
      const skip = start === 0 ? 0 : data.indexOf(10) + 1;
      const begin = skip < data.length ? skip : 0;
      const span = { attempt: oldest.attempt, start: start + begin, end: oldest.start, line: lineAfter(page.line, begin) };
      if (data.length) this.#renderer.prepend(decode(data.subarray(begin)), span);
      if (start > offset) this.#renderer.prependDivider(removedText(start - page.removedFrom), oldest.attempt, page.removedFrom);
      const latest = this.#renderer.latest;
      if (latest && (latest.attempt !== this.#end.attempt || latest.end !== this.#end.offset)) {
        this.#end = { attempt: latest.attempt, offset: latest.end };
        this.caughtUp = false;
        this.#renderer.restart();
      }
    });
  }

  /** @param {Source} source */
  #begin(source) {
    this.#source = source;
    this.#opened += 1;
  }

  /** @param {() => Promise<void>} step */
  #enqueue(step) {
    const opened = this.#opened;
    this.#queue = this.#queue
      .then(() => {
        this.#openedBeforeStep = opened;
        return opened === this.#opened ? step() : undefined;
      })
      .catch((error) => {
        if (!(error instanceof StaleRequest)) console.warn("the log could not be read", error);
      });
    return this.#queue;
  }

  /** Throws StaleRequest. */
  #requireCurrent() {
    if (this.#openedBeforeStep !== this.#opened) throw new StaleRequest();
  }

  /** @param {Source} source */
  async #openTail(source) {
    const { data, start, end, line } = await this.#read({ ...source, tail: TAIL_LINES });
    this.#show(source.attempt, start, data, end, line);
    this.size = end;
    this.caughtUp = true;
  }

  /** @param {Source} source @param {number} offset */
  async #openAt(source, offset) {
    const { end: size } = await this.#read({ ...source, tail: 0 });
    const target = Math.min(offset, size);
    const from = Math.max(0, target - LEAD_BYTES);
    const { data, start, end, line } = await this.#read({ ...source, offset: from, limit: LEAD_BYTES + PAGE_BYTES });
    const next = start === 0 ? 0 : data.indexOf(10) + 1;
    const skip = next <= target - start ? next : 0;
    this.size = size;
    this.#show(source.attempt, start + skip, data.subarray(skip), end, lineAfter(line, skip));
    this.caughtUp = this.#end.offset >= size;
  }

  /** @param {number} attempt @param {number} start @param {Uint8Array} data @param {number} end @param {number | null} line */
  #show(attempt, start, data, end, line) {
    this.#renderer.clear();
    this.#end = { attempt, offset: start };
    this.#append(...this.#wholeLines(data, end), line);
  }

  async #catchUp() {
    let shown = 0;
    for (;;) {
      const before = this.#end;
      if (!this.#source || !(await this.#loadNewer())) return;
      shown += this.#end.attempt === before.attempt ? this.#end.offset - before.offset : 0;
      if (shown > MAX_CATCH_UP_BYTES) return this.#openTail(this.#source);
    }
  }

  /** @param {number} [limit] bytes @returns {Promise<boolean>} whether there was anything */
  async #loadNewer(limit = CHUNK_BYTES) {
    const source = this.#source;
    if (!source) return false;
    const { attempt, offset } = this.#end;
    const { data, start, end, removedFrom, line } = await this.#read({ ...source, attempt, offset, limit });
    if (data.length) {
      if (start > offset) {
        this.#renderer.divider(removedText(start - removedFrom), attempt, start);
        this.#end = { attempt, offset: start };
      }
      this.#append(...this.#wholeLines(data, end), line);
    } else if (attempt < source.attempt) {
      this.#end = { attempt: attempt + 1, offset: 0 };
      if (attempt > 0) this.#renderer.divider(`attempt ${attempt + 1}`, attempt + 1);
    } else {
      this.size = offset;
      this.caughtUp = true;
      return false;
    }
    return true;
  }

  /**
   * Only whole lines where the log continues: a page that ends within a line is hard to read.
   *
   * @param {Uint8Array} data @param {number} end its position in the log @returns {[text: string, end: number]}
   */
  #wholeLines(data, end) {
    const lines = data.lastIndexOf(10) + 1;
    if (end >= this.size || lines === 0) return [decode(data), end];
    return [decode(data.subarray(0, lines)), end - (data.length - lines)];
  }

  /** @param {string} added @param {number} end @param {number | null} [line] the number of its first line */
  #append(added, end, line) {
    const { attempt, offset } = this.#end;
    if (!added) return;
    this.#renderer.append(added, { attempt, start: offset, end, line: line ?? (offset === 0 ? 1 : null) });
    this.#end = { attempt, offset: end };
    if (attempt !== this.#source?.attempt) return;
    this.#grow(end);
    this.caughtUp ||= end >= this.size;
  }

  /** @param {number} size */
  #grow(size) {
    this.size = Math.max(this.size, size);
  }

  /**
   * Bytes of one log, cut between two characters. A log that does not exist yet is an empty one. Throws StaleRequest.
   *
   * @param {Source & {offset?: number, limit?: number, tail?: number}} values
   */
  async #read(values) {
    this.#requireCurrent();
    try {
      const response = await send("GET /jobs/{job_id}/ranks/{rank}/log", { job_id: this.#jobId, ...values });
      const data = new Uint8Array(await response.arrayBuffer());
      const number = (/** @type {string} */ name) => Number(response.headers.get(name));
      const line = number("X-Line") || null;
      return { data, start: number("X-Offset"), end: number("X-Next-Offset"), removedFrom: number("X-Removed-From"), line };
    } catch (error) {
      if (isNotFound(error)) return { data: new Uint8Array(), start: 0, end: 0, removedFrom: 0, line: null };
      throw error;
    } finally {
      this.#requireCurrent();
    }
  }
}

/** The number of the line that follows one of number `line`, if its rest was skipped. @param {number | null} line @param {number} skipped bytes */
const lineAfter = (line, skipped) => (line !== null && skipped > 0 ? line + 1 : line);

/** @param {number} size */
export const removedText = (size) => `${bytes(size)} were removed here, since the log was larger than log_bytes`;

/** @param {Uint8Array} data */
const decode = (data) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(data);
