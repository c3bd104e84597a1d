/** The shared worker: one hub, and so one connection, for all tabs of a browser. */
import { StreamHub } from "./stream-hub.js";

const hub = new StreamHub();

self.addEventListener("connect", (event) => hub.attach(/** @type {MessageEvent} */ (event).ports[0]));
