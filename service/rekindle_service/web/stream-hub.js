/**
 * One event stream for all tabs of a browser: it merges what they want to hear, keeps one connection for it, connects
 * again when that is lost, and hands each tab its share.
 *
 * Two rules keep the tabs gapless. A changed subscription opens the new connection before the old one is closed.
 * And every tab is told `live` once the job that it shows is being served, anew after every loss: it then fetches what
 * it shows, and what the stream says afterwards comes on top. (Logs and
 * metrics need no such word: their events have offsets, by which a page sees that it has missed something.)
 *
 * Tab to hub: `{type: "subscribe", subscription}`, `{type: "leave"}`, `{type: "wake"}` (try again now).
 * Hub to tab: `{type: "live"}`, `{type: "reconnecting", at}` (at: milliseconds since the epoch of the next try),
 * `{type: "signed-out"}`, `{type: "event", event, data}`, and `{type: "look-again"}` when the server refuses to tell
 * about some job: the tab that shows it finds out by itself that it is gone, and stops asking.
 *
 * @typedef {{job: string | null, log: {rank: number, stream: string} | null}} Subscription
 * @typedef {{subscription: Subscription, live: boolean}} Tab
 * @typedef {{url: string, controller: AbortController}} Connection
 */
import { StreamRefused, readEvents } from "./sse.js";

const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 10_000;
/** Tabs that subscribe in the same moment (a restored window) share one connection. */
const GATHER_MS = 20;

/**
 * The query that covers every subscription, in an order that does not depend on the tabs'.
 *
 * @param {Subscription[]} subscriptions
 */
export function streamQuery(subscriptions) {
  const query = new URLSearchParams();
  const jobs = new Set(subscriptions.flatMap(({ job }) => (job ? [job] : [])));
  const logs = new Set(subscriptions.flatMap(({ job, log }) => (job && log ? [`${job}:${log.rank}:${log.stream}`] : [])));
  [...jobs].sort().forEach((job) => query.append("job", job));
  [...logs].sort().forEach((log) => query.append("log", log));
  return query.toString();
}

/**
 * Whether a tab wants this event: everything about the list goes to all, the rest to who looks at that job.
 *
 * @param {Subscription} subscription
 * @param {string} event
 * @param {any} data
 */
export function concerns({ job, log }, event, data) {
  if (event === "job" || event === "deleted") return true;
  if (data.job !== job) return false;
  return event !== "log" || (log !== null && data.rank === log.rank && data.stream === log.stream);
}

export class StreamHub {
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

  /**
   * @param {MessagePort} port
   * @param {{type: string, subscription?: Subscription}} message
   */
  #receive(port, message) {
    if (message.type === "subscribe" && message.subscription) {
      const before = this.#tabs.get(port);
      const live = before !== undefined && before.live && before.subscription.job === message.subscription.job;
      this.#tabs.set(port, { subscription: message.subscription, live });
      this.#schedule(GATHER_MS);
    } else if (message.type === "leave") {
      this.#tabs.delete(port);
      this.#schedule(GATHER_MS);
    } else if (message.type === "wake" && !this.#serving) {
      this.#schedule(0);
    }
  }

  /** @param {number} delay milliseconds */
  #schedule(delay) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#refresh(), delay);
  }

  /** Bring the connection in line with what the tabs want now. */
  #refresh() {
    if (!this.#tabs.size) return this.#close();
    const url = streamQuery([...this.#tabs.values()].map((tab) => tab.subscription));
    if (this.#serving?.url === url) {
      this.#drop(this.#opening);
      this.#opening = null;
      this.#announce();
    } else if (this.#opening?.url !== url) {
      this.#drop(this.#opening);
      this.#opening = { url, controller: new AbortController() };
      void this.#run(this.#opening);
    }
  }

  /** @param {Connection} connection */
  async #run(connection) {
    const query = [connection.url, this.#lastEventId === null ? "" : `last_event_id=${this.#lastEventId}`];
    const url = `/api/v1/events?${query.filter(Boolean).join("&")}`;
    let refused = 0;
    try {
      await readEvents(url, connection.controller, (event) => this.#heard(connection, event));
    } catch (error) {
      refused = error instanceof StreamRefused ? error.status : 0;
    }
    if (connection === this.#serving || connection === this.#opening) this.#lost(connection, refused);
  }

  /**
   * @param {Connection} connection
   * @param {import("./sse.js").ServerEvent} event
   */
  #heard(connection, { event, data, id }) {
    if (connection !== this.#serving && connection !== this.#opening) return;
    if (event === "hello") this.#take(connection);
    if (connection !== this.#serving) return;
    const value = JSON.parse(data);
    if (event === "hello") this.#lastEventId = String(value.version);
    else if (id) this.#lastEventId = id;
    for (const [port, tab] of this.#tabs) {
      if (event !== "hello" && concerns(tab.subscription, event, value)) port.postMessage({ type: "event", event, data: value });
    }
  }

  /** @param {Connection} connection the one that has been greeted: it serves from now on */
  #take(connection) {
    if (connection !== this.#serving) this.#drop(this.#serving);
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

  /**
   * @param {Connection} connection
   * @param {number} refused HTTP status of a refusal, or 0
   */
  #lost(connection, refused) {
    this.#drop(connection);
    if (connection === this.#serving) this.#serving = null;
    else this.#opening = null;
    if (refused === 401 || refused === 403) return this.#tellAll({ type: "signed-out" });
    if (refused === 404) this.#tellAll({ type: "look-again" });
    if (this.#serving || this.#opening) return this.#schedule(FIRST_DELAY_MS);
    const delay = Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** this.#failures) * (0.75 + Math.random() / 2);
    this.#failures += 1;
    this.#tabs.forEach((tab) => (tab.live = false));
    this.#tellAll({ type: "reconnecting", at: Date.now() + delay });
    this.#schedule(delay);
  }

  /** @param {object} message */
  #tellAll(message) {
    for (const port of this.#tabs.keys()) port.postMessage(message);
  }

  /** @param {Connection | null} connection */
  #drop(connection) {
    connection?.controller.abort();
  }

  #close() {
    const open = [this.#serving, this.#opening];
    this.#serving = this.#opening = null;
    open.forEach((connection) => this.#drop(connection));
  }
}
