/**
 * Reads a server-sent event stream by fetch. Unlike EventSource it distinguishes an expired session from an unreachable
 * server, and its caller chooses when and where to connect again.
 *
 * @typedef {{event: string, data: string, id: string | null}} ServerEvent
 */

/** After this silence a connection counts as dead: the server sends something every 15 s. */
const SILENCE_TIMEOUT_MS = 45_000;

/** The answer was not a stream; `status` is its HTTP status. */
export class StreamRejectedError extends Error {
  /** @param {number} status */
  constructor(status) {
    super(`the server rejected the event stream with status ${status}`);
    this.status = status;
  }
}

/** Chunks of text of any size in, whole events out. */
export class EventParser {
  #buffer = "";
  #event = "";
  /** @type {string[]} */
  #data = [];
  /** @type {string | null} */
  #id = null;

  /** @param {string} text @returns {ServerEvent[]} */
  push(text) {
    const lines = (this.#buffer + text).split(/\r\n|\n|\r(?!$)/);
    this.#buffer = lines.pop() ?? "";
    return lines.map((line) => this.#line(line)).filter((event) => event !== null);
  }

  /** @param {string} line @returns {ServerEvent | null} */
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
 * Resolves when the stream ended; throws StreamRejectedError, or what fetch throws.
 *
 * @param {string} url @param {AbortController} controller @param {(event: ServerEvent) => void} onEvent
 */
export async function readEvents(url, controller, onEvent) {
  const startWatchdog = () => setTimeout(() => controller.abort(), SILENCE_TIMEOUT_MS);
  let watchdog = startWatchdog();
  try {
    const response = await fetch(url, { headers: { Accept: "text/event-stream" }, cache: "no-store", signal: controller.signal });
    if (!response.ok || !response.body) throw new StreamRejectedError(response.status);
    const parser = new EventParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(watchdog);
      watchdog = startWatchdog();
      parser.push(value).forEach(onEvent);
    }
  } finally {
    clearTimeout(watchdog);
  }
}
