/** Copies text to the clipboard, which browsers reject over plain http from another machine. */
import { byId, setText } from "./dom.js";

const SHOWN_MS = 4000;

/** @param {string} text @param {HTMLElement} [report] where the result is shown for a while; by default the element `copied` */
export async function copyText(text, report = byId("copied")) {
  const result = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  setText(report, result ? "Copied" : "The browser does not allow copying here: it requires https or localhost");
  setTimeout(() => setText(report, ""), SHOWN_MS);
}
