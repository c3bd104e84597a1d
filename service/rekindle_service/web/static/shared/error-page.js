/** The page of an error: it only shows whether the server can be reached. */
import { EventStream } from "../events/event-stream.js";

new EventStream({ resync() {}, event() {} });
