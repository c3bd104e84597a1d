/**
 * A page's end of the event stream: the shared worker where there is one, else a hub of the page's own.
 *
 * @typedef {import("./stream-hub.js").Subscription} Subscription
 * @typedef {object} Listener
 * @property {() => void} live what the page shows may be old: fetch it; the stream goes on from here
 * @property {(event: string, data: any) => void} event
 */
import { signIn } from "./api.js";
import { everySecond } from "./clock.js";
import { byId, setText } from "./dom.js";
import { StreamHub } from "./stream-hub.js";

/** What a page in the background listens to: the list alone, which costs the server next to nothing. */
const LIST = { job: null, log: null };

/** @returns {MessagePort} */
function ownHub() {
  const channel = new MessageChannel();
  new StreamHub().attach(channel.port1);
  return channel.port2;
}

/** @returns {MessagePort} */
function sharedHub() {
  return new SharedWorker("/static/stream-worker.js", { type: "module", name: "rekindle-events" }).port;
}

/** The note in the page's head that says whether what it shows is fresh. */
class ConnectionNote {
  #node = byId("connection");
  /** @type {number | null} */
  #retryAt = null;

  constructor() {
    everySecond(() => this.#show());
  }

  live() {
    this.#retryAt = null;
    this.#node.dataset.state = "live";
    setText(this.#node, "Live");
  }

  /** @param {number} retryAt */
  reconnecting(retryAt) {
    this.#retryAt = retryAt;
    this.#node.dataset.state = "reconnecting";
    this.#show();
  }

  #show() {
    if (this.#retryAt === null) return;
    const seconds = Math.ceil((this.#retryAt - Date.now()) / 1000);
    setText(this.#node, seconds > 0 ? `Server not reached, next try in ${seconds} s` : "Reconnecting …");
  }
}

export class Stream {
  #port = "SharedWorker" in globalThis ? sharedHub() : ownHub();
  #note = new ConnectionNote();
  /** @type {Subscription} */
  #subscription;
  #listener;

  /**
   * @param {Subscription} subscription
   * @param {Listener} listener
   */
  constructor(subscription, listener) {
    this.#subscription = subscription;
    this.#listener = listener;
    this.#port.addEventListener("message", ({ data }) => this.#receive(data));
    this.#port.start();
    this.#tell();
    addEventListener("pagehide", () => this.#port.postMessage({ type: "leave" }));
    addEventListener("pageshow", (event) => event.persisted && this.#tell());
    addEventListener("online", () => this.#port.postMessage({ type: "wake" }));
    document.addEventListener("visibilitychange", () => this.#tell());
  }

  /** @param {Subscription} subscription */
  subscribe(subscription) {
    this.#subscription = subscription;
    this.#tell();
  }

  #tell() {
    this.#port.postMessage({ type: "subscribe", subscription: document.hidden ? LIST : this.#subscription });
  }

  /** @param {any} message */
  #receive(message) {
    if (message.type === "event") return this.#listener.event(message.event, message.data);
    if (message.type === "signed-out") return signIn();
    if (message.type === "reconnecting") return this.#note.reconnecting(message.at);
    if (message.type === "look-again") return this.#listener.live();
    this.#note.live();
    this.#listener.live();
  }
}
