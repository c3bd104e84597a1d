/** The shared worker: one event source, and so one connection, for all tabs of a browser. */
import { SharedEventSource } from "./shared-event-source.js";

const source = new SharedEventSource();

self.addEventListener("connect", (event) => source.attach(/** @type {MessageEvent} */ (event).ports[0]));
