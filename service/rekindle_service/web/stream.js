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
import { byId, h, setText } from "./dom.js";
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

/**
 * The note in the page's head that says whether what it shows is fresh. A screen reader tells when that changes; the
 * seconds to the next try stand beside it, for the eye.
 */
class ConnectionNote {
  #node = byId("connection");
  #wait = h("span", { class: "connection-wait", "aria-hidden": "true" });
  /** @type {number | null} */
  #retryAt = null;

  constructor() {
    this.#node.after(this.#wait);
    everySecond(() => this.#show());
  }

  live() {
    this.#retryAt = null;
    this.#node.dataset.state = "live";
    setText(this.#node, "Live");
    setText(this.#wait, "");
  }

  /** @param {number} retryAt */
  reconnecting(retryAt) {
    this.#retryAt = retryAt;
    this.#node.dataset.state = "reconnecting";
    setText(this.#node, "Server not reached");
    this.#show();
  }

  #show() {
    if (this.#retryAt === null) return;
    const seconds = Math.ceil((this.#retryAt - Date.now()) / 1000);
    setText(this.#wait, seconds > 0 ? `next try in ${seconds} s` : "trying …");
  }
}

export class Stream {
  #port = "SharedWorker" in globalThis ? sharedHub() : ownHub();
  #note = new ConnectionNote();
  /** @type {Subscription} */
  #subscription;
  #listener;
  /** The page is being left: it is told to be hidden after that, which must not bring it back. */
  #away = false;

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
    addEventListener("pagehide", () => this.#leave());
    addEventListener("pageshow", (event) => this.#arrive(event.persisted));
    addEventListener("online", () => this.#port.postMessage({ type: "wake" }));
    document.addEventListener("visibilitychange", () => this.#tell());
  }

  /** @param {Subscription} subscription */
  subscribe(subscription) {
    this.#subscription = subscription;
    this.#tell();
  }

  #leave() {
    this.#away = true;
    this.#port.postMessage({ type: "leave" });
  }

  /** @param {boolean} again from the browser's memory of pages */
  #arrive(again) {
    this.#away = false;
    if (again) this.#tell();
  }

  #tell() {
    if (this.#away) return;
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
