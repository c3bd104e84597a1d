/**
 * A page's end of the event stream: the shared worker, or an event source of the page's own where there is none.
 *
 * @typedef {import("./shared-event-source.js").Subscription} Subscription
 * @typedef {object} Listener
 * @property {() => void} resync what the page shows may be old: fetch it; the stream continues from here
 * @property {(event: string, data: any) => unknown} event
 */
import { signIn } from "../shared/api.js";
import { byId, h, setText } from "../shared/dom.js";
import { everySecond } from "../shared/timing.js";
import { SharedEventSource } from "./shared-event-source.js";

/** The list of jobs alone, which costs the server next to nothing: for most pages, and for every hidden one. */
const LIST = { job: null, log: null };

/** @returns {MessagePort} */
function ownSource() {
  const channel = new MessageChannel();
  new SharedEventSource().attach(channel.port1);
  return channel.port2;
}

/** @returns {MessagePort} */
function workerSource() {
  const url = new URL("./event-source-worker.js", import.meta.url);
  return new SharedWorker(url, { type: "module", name: "rekindle-events" }).port;
}

/** Seconds without a server after which the page explains what that means: a restart is shorter. */
const EXPLAINED_AFTER = 4;

/**
 * The note in the page's header that says whether the page is up to date. A screen reader announces a change; the
 * seconds to the next retry are next to it, for the eye.
 */
class ConnectionNote {
  #node = byId("connection");
  #wait = h("span", { class: "connection-wait", "aria-hidden": "true" });
  #offline = h(
    "p",
    { class: "offline", hidden: true },
    "The server cannot be reached, so this page may be out of date. Running jobs continue without it. The page updates itself when the server is back; on the server's machine, ",
    h("code", {}, "rekindle doctor"),
    " shows what is wrong.",
  );
  /** @type {number | null} */
  #retryAt = null;
  #lostAt = 0;

  constructor() {
    this.#node.after(this.#wait);
    document.querySelector("header.top")?.after(this.#offline);
    everySecond(() => this.#tick());
  }

  live() {
    this.#retryAt = null;
    this.#offline.hidden = true;
    this.#node.dataset.state = "live";
    setText(this.#node, "Live");
    setText(this.#wait, "");
  }

  /** @param {number} retryAt milliseconds since the epoch */
  reconnecting(retryAt) {
    if (this.#retryAt === null) this.#lostAt = Date.now();
    this.#retryAt = retryAt;
    this.#node.dataset.state = "reconnecting";
    setText(this.#node, "Server unreachable");
    this.#tick();
  }

  #tick() {
    if (this.#retryAt === null) return;
    if (Date.now() - this.#lostAt > 1000 * EXPLAINED_AFTER) this.#offline.hidden = false;
    const seconds = Math.ceil((this.#retryAt - Date.now()) / 1000);
    setText(this.#wait, seconds > 0 ? `retrying in ${seconds} s` : "retrying …");
  }
}

export class EventStream {
  #port = "SharedWorker" in globalThis ? workerSource() : ownSource();
  #note = new ConnectionNote();
  #listener;
  #subscription;
  /** The page is being left: the visibility change that follows must not subscribe it again. */
  #left = false;

  /** @param {Listener} listener @param {Subscription} [subscription] */
  constructor(listener, subscription = LIST) {
    this.#listener = listener;
    this.#subscription = subscription;
    this.#port.addEventListener("message", ({ data }) => this.#receive(data));
    this.#port.start();
    this.#subscribe();
    addEventListener("pagehide", () => {
      this.#left = true;
      this.#port.postMessage({ type: "leave" });
    });
    addEventListener("pageshow", ({ persisted }) => {
      this.#left = false;
      if (persisted) this.#subscribe(); // the browser shows the page again without loading it
    });
    addEventListener("online", () => this.#port.postMessage({ type: "wake" }));
    document.addEventListener("visibilitychange", () => this.#subscribe());
  }

  /** @param {Subscription} [subscription] */
  subscribe(subscription = LIST) {
    this.#subscription = subscription;
    this.#subscribe();
  }

  #subscribe() {
    if (this.#left) return;
    this.#port.postMessage({ type: "subscribe", subscription: document.hidden ? LIST : this.#subscription });
  }

  /** @param {any} message */
  #receive(message) {
    if (message.type === "event") return void this.#listener.event(message.event, message.data);
    if (message.type === "signed-out") return signIn();
    if (message.type === "reconnecting") return this.#note.reconnecting(message.at);
    if (message.type === "live") this.#note.live();
    this.#listener.resync();
  }
}
