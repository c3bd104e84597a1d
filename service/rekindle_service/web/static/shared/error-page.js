/** The page of an error: it only shows whether the server can be reached. */
import { EventStream } from "../events/event-stream.js";
import "./layout.js";

new EventStream({ resync() {}, event() {} });
