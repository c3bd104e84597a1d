/**
 * Reading of a server-sent event stream by fetch. Unlike EventSource it tells a refused session from a lost server,
 * and lets the caller choose when and where to connect again.
 *
 * @typedef {{event: string, data: string, id: string | null}} ServerEvent
 */

/** Longest silence in milliseconds before a connection counts as dead; the server says something every 15 s. */
const SILENCE_MS = 45_000;

/** The answer was not a stream; `status` is its HTTP status. */
export class StreamRefused extends Error {
  /** @param {number} status */
  constructor(status) {
    super(`the event stream was refused with status ${status}`);
    this.status = status;
  }
}

/** Text in pieces of any size in, whole events out. */
export class EventParser {
  #buffer = "";
  #event = "";
  /** @type {string[]} */
  #data = [];
  /** @type {string | null} */
  #id = null;

  /**
   * @param {string} text
   * @returns {ServerEvent[]}
   */
  push(text) {
    const lines = (this.#buffer + text).split(/\r\n|\n|\r(?!$)/);
    this.#buffer = lines.pop() ?? "";
    return lines.map((line) => this.#line(line)).filter((event) => event !== null);
  }

  /**
   * @param {string} line
   * @returns {ServerEvent | null}
   */
  #line(line) {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.#event = value;
    else if (field === "data") this.#data.push(value);
    else if (field === "id") this.#id = value;
    return null;
  }

  /** @returns {ServerEvent | null} */
  #dispatch() {
    const event = this.#data.length ? { event: this.#event || "message", data: this.#data.join("\n"), id: this.#id } : null;
    this.#event = "";
    this.#data = [];
    return event;
  }
}

/**
 * Read events from `url` until the server ends the stream, falls silent, or `controller` is aborted.
 *
 * Resolves when the stream ended; throws StreamRefused, or what fetch throws.
 *
 * @param {string} url
 * @param {AbortController} controller
 * @param {(event: ServerEvent) => void} onEvent
 */
export async function readEvents(url, controller, onEvent) {
  let watchdog = setTimeout(() => controller.abort(), SILENCE_MS);
  try {
    const response = await fetch(url, {
      headers: { Accept: "text/event-stream" },
      cache: "no-store",
      signal: controller.signal,
    });
    if (!response.ok || !response.body) throw new StreamRefused(response.status);
    const parser = new EventParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(() => controller.abort(), SILENCE_MS);
      parser.push(value).forEach(onEvent);
    }
  } finally {
    clearTimeout(watchdog);
  }
}
