/**
 * One event stream for all tabs of a browser: it merges their subscriptions, keeps one connection for them, reconnects
 * when that is lost, and sends each tab the events that match. Two rules keep the tabs gapless. A changed subscription
 * opens the new connection before it closes the old one. And every tab receives `live` once its job is being streamed,
 * and again after every loss: it then fetches what it shows, and later events come on top. (Logs and metrics need no
 * such message: their events carry offsets, from which a page sees that it has missed something.) Tab to source:
 * `{type: "subscribe", subscription}`, `{type: "leave"}`, `{type: "wake"}` (reconnect now). Source to tab: `{type:
 * "live"}`, `{type: "reconnecting", at}` (at: milliseconds since the epoch of the next try), `{type: "signed-out"}`,
 * `{type: "event", event, data}`, and `{type: "resync"}` when the server does not know some job: the tab that shows it
 * finds out by fetching that it is gone, and unsubscribes.
 *
 * @typedef {{job: string | null, log: {rank: number, stream: string} | null}} Subscription
 * @typedef {{subscription: Subscription, live: boolean}} Tab
 * @typedef {{query: string, controller: AbortController}} Connection
 * @typedef {{event: string, data: string, id: string | null}} ServerEvent
 */

// --- Reads a server-sent event stream by fetch. Unlike EventSource it distinguishes an expired session from an
// unreachable server, and its caller chooses when and where to connect again.

/** After this silence a connection counts as dead: the server sends something every 15 s. */
const SILENCE_TIMEOUT_MS = 45_000;

/** The answer was not a stream; `status` is its HTTP status. */
class StreamRejectedError extends Error {
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
async function readEvents(url, controller, onEvent) {
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

// --- The page.

const MIN_DELAY_MS = 500;
const MAX_DELAY_MS = 10_000;
/** Tabs that subscribe at the same moment (a restored window) share one connection. */
const SUBSCRIBE_DELAY_MS = 20;

/**
 * The query that covers every subscription, in an order that does not depend on the tabs'.
 *
 * @param {Subscription[]} subscriptions
 */
function queryOf(subscriptions) {
  const query = new URLSearchParams();
  const jobs = new Set(subscriptions.flatMap(({ job }) => (job ? [job] : [])));
  const logs = new Set(subscriptions.flatMap(({ job, log }) => (job && log ? [`${job}:${log.rank}:${log.stream}`] : [])));
  [...jobs].sort().forEach((job) => query.append("job", job));
  [...logs].sort().forEach((log) => query.append("log", log));
  return query.toString();
}

/**
 * Whether a tab receives this event: every tab those about the list of jobs, the others only the tabs that show the job.
 *
 * @param {Subscription} subscription @param {string} event @param {any} data
 */
function matches({ job, log }, event, data) {
  if (event === "job" || event === "deleted") return true;
  if (data.job !== job) return false;
  return event !== "log" || (log !== null && data.rank === log.rank && data.stream === log.stream);
}

export class SharedEventSource {
  /** @type {Map<MessagePort, Tab>} */
  #tabs = new Map();
  /** @type {Connection | null} */
  #serving = null;
  /** @type {Connection | null} */
  #opening = null;
  /** @type {string | null} */
  #lastEventId = null;
  #failures = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer = undefined;

  /** @param {MessagePort} port */
  attach(port) {
    port.addEventListener("message", ({ data }) => this.#receive(port, data));
    port.addEventListener("close", () => this.#receive(port, { type: "leave" }));
    port.start();
  }

  /** @param {MessagePort} port @param {{type: string, subscription?: Subscription}} message */
  #receive(port, message) {
    if (message.type === "subscribe" && message.subscription) {
      const { job } = message.subscription;
      const before = this.#tabs.get(port);
      const live = before !== undefined && before.live && (job === null || job === before.subscription.job);
      this.#tabs.set(port, { subscription: message.subscription, live });
      this.#schedule(SUBSCRIBE_DELAY_MS);
    } else if (message.type === "leave") {
      this.#tabs.delete(port);
      this.#schedule(SUBSCRIBE_DELAY_MS);
    } else if (message.type === "wake" && !this.#serving) {
      this.#schedule(0);
    }
  }

  /** @param {number} delay milliseconds */
  #schedule(delay) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#update(), delay);
  }

  /** Bring the connection in line with the tabs' subscriptions. */
  #update() {
    if (!this.#tabs.size) return this.#close();
    const query = queryOf([...this.#tabs.values()].map((tab) => tab.subscription));
    if (this.#serving?.query === query) {
      this.#opening?.controller.abort();
      this.#opening = null;
      this.#announce();
    } else if (this.#opening?.query !== query) {
      this.#opening?.controller.abort();
      this.#opening = { query, controller: new AbortController() };
      void this.#run(this.#opening);
    }
  }

  /** @param {Connection} connection */
  async #run(connection) {
    const query = [connection.query, this.#lastEventId === null ? "" : `last_event_id=${this.#lastEventId}`];
    const url = `/api/v1/events?${query.filter(Boolean).join("&")}`;
    let status = 0;
    try {
      await readEvents(url, connection.controller, (event) => this.#onEvent(connection, event));
    } catch (error) {
      status = error instanceof StreamRejectedError ? error.status : 0;
    }
    if (connection === this.#serving || connection === this.#opening) this.#onLoss(connection, status);
  }

  /** @param {Connection} connection @param {ServerEvent} event */
  #onEvent(connection, { event, data, id }) {
    if (connection !== this.#serving && connection !== this.#opening) return;
    if (event === "hello") this.#promote(connection);
    if (connection !== this.#serving) return;
    const value = JSON.parse(data);
    if (event === "hello") this.#lastEventId = String(value.version);
    else if (id) this.#lastEventId = id;
    for (const [port, tab] of this.#tabs) {
      if (event !== "hello" && matches(tab.subscription, event, value)) port.postMessage({ type: "event", event, data: value });
    }
  }

  /** The connection that received the server's greeting serves from now on. @param {Connection} connection */
  #promote(connection) {
    if (connection !== this.#serving) this.#serving?.controller.abort();
    this.#serving = connection;
    this.#opening = null;
    this.#failures = 0;
    this.#announce();
  }

  #announce() {
    for (const [port, tab] of this.#tabs) {
      if (!tab.live) port.postMessage({ type: "live" });
      tab.live = true;
    }
  }

  /** @param {Connection} connection @param {number} status HTTP status of a rejection, or 0 */
  #onLoss(connection, status) {
    connection.controller.abort();
    if (connection === this.#serving) this.#serving = null;
    else this.#opening = null;
    if (status === 401 || status === 403) return this.#broadcast({ type: "signed-out" });
    if (status === 404) this.#broadcast({ type: "resync" });
    if (this.#serving || this.#opening) return this.#schedule(MIN_DELAY_MS);
    const delay = Math.min(MAX_DELAY_MS, MIN_DELAY_MS * 2 ** this.#failures) * (0.75 + Math.random() / 2);
    this.#failures += 1;
    this.#tabs.forEach((tab) => (tab.live = false));
    this.#broadcast({ type: "reconnecting", at: Date.now() + delay });
    this.#schedule(delay);
  }

  /** @param {object} message */
  #broadcast(message) {
    for (const port of this.#tabs.keys()) port.postMessage(message);
  }

  #close() {
    const open = [this.#serving, this.#opening];
    this.#serving = this.#opening = null;
    open.forEach((connection) => connection?.controller.abort());
  }
}
