/**
 * What pages have in common: the person, the keys and the command palette in the header; a refresh when the event stream
 * reports a change; and a sentence when their subject is gone.
 */
import { EventStream } from "../events/event-stream.js";
import "./account.js";
import "./command-palette.js";
import { byId, setText } from "./dom.js";
import { DebouncedRefresh } from "./timing.js";

/** The id at the end of the page's URL. */
export const idInUrl = () => decodeURIComponent(location.pathname.split("/").at(-1) ?? "");

/**
 * Refresh the page now, after every reconnection, when the browser goes back or forward, and soon after an event for
 * which `onEvent` returns true.
 *
 * @param {() => Promise<unknown>} refresh @param {number} delay milliseconds in which many events lead to one refresh
 * @param {(event: string, data: any) => boolean} onEvent
 */
export function keepFresh(refresh, delay, onEvent) {
  const refreshing = new DebouncedRefresh(refresh, delay);
  addEventListener("popstate", () => refreshing.now());
  new EventStream({ resync: () => refreshing.now(), event: (event, data) => onEvent(event, data) && refreshing.soon() });
  return refreshing;
}

/** The page shows its data: screen readers may read it. */
export const markReady = () => document.querySelector("main")?.setAttribute("aria-busy", "false");

/** Show that the page's subject does not exist. @param {string} sentence */
export function showGone(sentence) {
  for (const main of document.querySelectorAll("main")) main.hidden = main.id !== "gone";
  setText(byId("gone-sentence"), sentence);
}
