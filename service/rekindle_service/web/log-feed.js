/**
 * A window on one rank's log, moved over its bytes without gap or repetition: the newest bytes come by the event stream
 * where they fit, everything else by offset from the server, so the length of a log does not matter.
 *
 * @typedef {{rank: number, stream: string, attempt: number}} Source
 */
import { Problem, readLog } from "./api.js";

const TAIL_LINES = 500;
/** What is fetched of new output at once. */
const PIECE_BYTES = 64 * 1024;
/** What is added by scrolling: a dozen screens. */
const PAGE_BYTES = 32 * 1024;
/** Shown before a place that is looked up. */
const LEAD_BYTES = 8 * 1024;
/** Whoever is further behind than this wants to see the end, not to watch a megabyte go by. */
const LONGEST_CATCH_UP = 1_000_000;

/** Another log was opened meanwhile: what a step is about to show is not wanted any more. */
class Superseded extends Error {}

export class LogFeed {
  #jobId;
  #lines;
  /** @type {Source | null} */
  #source = null;
  /** Where the window ends. */
  #end = { attempt: 0, offset: 0 };
  /** Bytes of the source's log, as far as is known. */
  #size = 0;
  /** The window has reached the end of the log, and has not been moved back since. */
  #caughtUp = false;
  /** @type {Promise<void>} one step at a time, in the order asked for */
  #queue = Promise.resolve();
  /** How often a log was opened, now and when the step under way was asked for. */
  #opened = 0;
  #stepOf = 0;

  /**
   * @param {string} jobId
   * @param {import("./log-lines.js").LogLines} lines
   */
  constructor(jobId, lines) {
    this.#jobId = jobId;
    this.#lines = lines;
  }

  get size() {
    return this.#size;
  }

  /** True where older output than what is shown can be fetched. */
  get hasEarlier() {
    return (this.#lines.oldest?.start ?? 0) > 0;
  }

  /** True where what is missing below, if anything, was written since the end was shown. */
  get caughtUp() {
    return this.#caughtUp;
  }

  /** True where newer output than what is shown is known of. */
  get hasLater() {
    return this.#end.attempt < (this.#source?.attempt ?? 0) || this.#end.offset < this.#size;
  }

  /**
   * Show the end of `source` and nothing else.
   *
   * @param {Source} source
   */
  open(source) {
    this.#begin(source);
    return this.#enqueue(() => this.#openTail(source));
  }

  /**
   * Show `source` around byte `offset` and nothing else.
   *
   * @param {Source} source
   * @param {number} offset
   */
  openAt(source, offset) {
    this.#begin(source);
    return this.#enqueue(() => this.#openAt(source, offset));
  }

  /**
   * Go on with a later attempt below what is shown.
   *
   * @param {number} attempt
   * @param {boolean} following else what is shown stays, and the new output waits below it
   */
  goOn(attempt, following) {
    if (!this.#source || attempt <= this.#source.attempt) return this.#queue;
    this.#source = { ...this.#source, attempt };
    this.#size = 0;
    return following ? this.#enqueue(() => this.#catchUp()) : this.#queue;
  }

  /** @param {{attempt: number, offset: number, next_offset: number, text: string}} event new bytes of the followed log */
  hear(event) {
    return this.#enqueue(async () => {
      if (event.attempt !== this.#source?.attempt) return;
      this.#grow(event.next_offset);
      if (event.attempt === this.#end.attempt && event.next_offset <= this.#end.offset) return;
      if (event.attempt === this.#end.attempt && event.offset === this.#end.offset) this.#append(event.text, event.next_offset);
      else await this.#catchUp();
    });
  }

  /**
   * New bytes that are not to be shown yet.
   *
   * @param {{attempt: number, next_offset: number}} event
   */
  note(event) {
    if (event.attempt === this.#source?.attempt) this.#grow(event.next_offset);
  }

  /** Fetch what has come since the last byte shown. */
  catchUp() {
    return this.#enqueue(() => this.#catchUp());
  }

  /** Show one more piece after the newest. */
  later() {
    return this.#enqueue(async () => void (await this.#later(PAGE_BYTES)));
  }

  /** Show one more piece before the oldest; the newest gives way where there is too much. */
  earlier() {
    return this.#enqueue(async () => {
      const oldest = this.#lines.oldest;
      if (!oldest || !this.#source || oldest.start === 0) return;
      const offset = Math.max(0, oldest.start - PAGE_BYTES);
      const { data } = await this.#read({ ...this.#source, attempt: oldest.attempt, offset, limit: oldest.start - offset });
      const skip = offset === 0 ? 0 : data.indexOf(10) + 1;
      const begin = skip < data.length ? skip : 0;
      const span = { attempt: oldest.attempt, start: offset + begin, end: oldest.start };
      this.#lines.prepend(text(data.subarray(begin)), span);
      const newest = this.#lines.newest;
      if (newest && (newest.attempt !== this.#end.attempt || newest.end !== this.#end.offset)) {
        this.#end = { attempt: newest.attempt, offset: newest.end };
        this.#caughtUp = false;
        this.#lines.restart();
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
        this.#stepOf = opened;
        return opened === this.#opened ? step() : undefined;
      })
      .catch((error) => {
        if (!(error instanceof Superseded)) console.warn("the log could not be read", error);
      });
    return this.#queue;
  }

  /** Raises Superseded. */
  #requireWanted() {
    if (this.#stepOf !== this.#opened) throw new Superseded();
  }

  /** @param {Source} source */
  async #openTail(source) {
    const { data, start, end } = await this.#read({ ...source, tail: TAIL_LINES });
    this.#show(source.attempt, start, data, end);
    this.#size = end;
    this.#caughtUp = true;
  }

  /**
   * @param {Source} source
   * @param {number} offset
   */
  async #openAt(source, offset) {
    const { end: size } = await this.#read({ ...source, tail: 0 });
    const target = Math.min(offset, size);
    const from = Math.max(0, target - LEAD_BYTES);
    const { data, end } = await this.#read({ ...source, offset: from, limit: LEAD_BYTES + PAGE_BYTES });
    const line = from === 0 ? 0 : data.indexOf(10) + 1;
    const skip = line <= target - from ? line : 0;
    this.#size = size;
    this.#show(source.attempt, from + skip, data.subarray(skip), end);
    this.#caughtUp = this.#end.offset >= size;
  }

  /**
   * @param {number} attempt
   * @param {number} start
   * @param {Uint8Array} data
   * @param {number} end
   */
  #show(attempt, start, data, end) {
    this.#lines.clear();
    this.#end = { attempt, offset: start };
    this.#append(...this.#whole(data, end));
  }

  async #catchUp() {
    let shown = 0;
    for (;;) {
      const before = this.#end;
      if (!this.#source || !(await this.#later())) return;
      shown += this.#end.attempt === before.attempt ? this.#end.offset - before.offset : 0;
      if (shown > LONGEST_CATCH_UP) return this.#openTail(this.#source);
    }
  }

  /**
   * @param {number} [limit] bytes
   * @returns {Promise<boolean>} whether there was anything
   */
  async #later(limit = PIECE_BYTES) {
    const source = this.#source;
    if (!source) return false;
    const { attempt, offset } = this.#end;
    const { data, end } = await this.#read({ ...source, attempt, offset, limit });
    if (data.length) {
      this.#append(...this.#whole(data, end));
    } else if (attempt < source.attempt) {
      this.#end = { attempt: attempt + 1, offset: 0 };
      this.#lines.mark(`attempt ${attempt + 1}`, attempt + 1);
    } else {
      this.#size = offset;
      this.#caughtUp = true;
      return false;
    }
    return true;
  }

  /**
   * Whole lines, where more is known to follow: a page that ends within one is hard to read.
   *
   * @param {Uint8Array} data
   * @param {number} end where it ends in the log
   * @returns {[text: string, end: number]}
   */
  #whole(data, end) {
    const lines = data.lastIndexOf(10) + 1;
    if (end >= this.#size || lines === 0) return [text(data), end];
    return [text(data.subarray(0, lines)), end - (data.length - lines)];
  }

  /**
   * @param {string} added
   * @param {number} end
   */
  #append(added, end) {
    const { attempt, offset } = this.#end;
    if (!added) return;
    this.#lines.append(added, { attempt, start: offset, end });
    this.#end = { attempt, offset: end };
    if (attempt !== this.#source?.attempt) return;
    this.#grow(end);
    this.#caughtUp ||= end >= this.#size;
  }

  /** @param {number} size */
  #grow(size) {
    this.#size = Math.max(this.#size, size);
  }

  /**
   * A log that does not exist yet is an empty one. Raises Superseded.
   *
   * @param {Source & {offset?: number, limit?: number, tail?: number}} query
   */
  async #read(query) {
    this.#requireWanted();
    try {
      return await readLog(this.#jobId, query);
    } catch (error) {
      if (error instanceof Problem && error.status === 404) return { data: new Uint8Array(), start: 0, end: 0 };
      throw error;
    } finally {
      this.#requireWanted();
    }
  }
}

/** @param {Uint8Array} data */
function text(data) {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(data);
}
