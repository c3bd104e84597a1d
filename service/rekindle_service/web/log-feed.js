/**
 * Bytes of one rank's log, without gap or repetition: the newest by the event stream where they fit, everything else
 * by offset from the server.
 *
 * @typedef {{rank: number, stream: string, attempt: number}} Source
 */
import { Problem, readLog } from "./api.js";

const TAIL_LINES = 500;
const PIECE_BYTES = 64 * 1024;
/** Whoever is further behind than this wants to see the end, not to watch a megabyte go by. */
const LONGEST_CATCH_UP = 1_000_000;

export class LogFeed {
  #jobId;
  #lines;
  /** @type {Source | null} */
  #source = null;
  #next = 0;
  /** @type {Promise<void>} one step at a time, in the order asked for */
  #queue = Promise.resolve();

  /**
   * @param {string} jobId
   * @param {import("./log-lines.js").LogLines} lines
   */
  constructor(jobId, lines) {
    this.#jobId = jobId;
    this.#lines = lines;
  }

  /** True where older output than what is shown can be fetched. */
  get hasEarlier() {
    return (this.#lines.oldest?.start ?? 0) > 0;
  }

  /**
   * Show the end of `source` and nothing else.
   *
   * @param {Source} source
   */
  open(source) {
    this.#source = source;
    return this.#enqueue(() => this.#openTail(source));
  }

  /**
   * Go on with a later attempt below what is shown.
   *
   * @param {number} attempt
   */
  goOn(attempt) {
    if (!this.#source || attempt <= this.#source.attempt) return this.#queue;
    this.#source = { ...this.#source, attempt };
    return this.#enqueue(async () => {
      this.#lines.mark(`attempt ${attempt}`, attempt);
      this.#next = 0;
      await this.#catchUp();
    });
  }

  /**
   * @param {{attempt: number, offset: number, next_offset: number, text: string}} event new bytes of the followed log
   */
  hear(event) {
    return this.#enqueue(async () => {
      if (event.attempt !== this.#source?.attempt || event.next_offset <= this.#next) return;
      if (event.offset === this.#next) this.#append(event.text, event.next_offset);
      else await this.#catchUp();
    });
  }

  /** Fetch what has come since the last byte shown. */
  catchUp() {
    return this.#enqueue(() => this.#catchUp());
  }

  /** Show one more piece before the oldest. Resolves to whether the newest rows had to go for it. */
  async earlier() {
    let cut = false;
    await this.#enqueue(async () => {
      const oldest = this.#lines.oldest;
      if (!oldest || !this.#source) return;
      const offset = Math.max(0, oldest.start - PIECE_BYTES);
      const { data } = await this.#read({ ...this.#source, attempt: oldest.attempt, offset, limit: oldest.start - offset });
      const skip = offset === 0 ? 0 : data.indexOf(10) + 1;
      const span = { attempt: oldest.attempt, start: offset + skip, end: oldest.start };
      cut = this.#lines.prepend(text(data.subarray(skip)), span);
    });
    return cut;
  }

  /** @param {() => Promise<void>} step */
  #enqueue(step) {
    const source = this.#source;
    const fresh = () => (source?.rank === this.#source?.rank && source?.stream === this.#source?.stream ? step() : undefined);
    this.#queue = this.#queue.then(fresh).catch((error) => console.warn("the log could not be read", error));
    return this.#queue;
  }

  /** @param {Source} source */
  async #openTail(source) {
    const { data, start, end } = await this.#read({ ...source, tail: TAIL_LINES });
    this.#lines.clear();
    this.#next = start;
    this.#append(text(data), end);
  }

  async #catchUp() {
    const from = this.#next;
    for (;;) {
      const source = this.#source;
      if (!source) return;
      if (this.#next - from > LONGEST_CATCH_UP) return this.#openTail(source);
      const { data, end } = await this.#read({ ...source, offset: this.#next, limit: PIECE_BYTES });
      if (!data.length) return;
      this.#append(text(data), end);
    }
  }

  /**
   * @param {string} added
   * @param {number} end
   */
  #append(added, end) {
    if (!this.#source || !added) return;
    this.#lines.append(added, { attempt: this.#source.attempt, start: this.#next, end });
    this.#next = end;
  }

  /**
   * A log that does not exist yet is an empty one.
   *
   * @param {Source & {offset?: number, limit?: number, tail?: number}} query
   */
  async #read(query) {
    try {
      return await readLog(this.#jobId, query);
    } catch (error) {
      if (error instanceof Problem && error.status === 404) return { data: new Uint8Array(), start: 0, end: 0 };
      throw error;
    }
  }
}

/** @param {Uint8Array} data */
function text(data) {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(data);
}
