/** The page of an error: it only shows whether the server can be reached. */
import { EventStream } from "../events/event-stream.js";
import "./live-page.js";

new EventStream({ resync() {}, event() {} });
