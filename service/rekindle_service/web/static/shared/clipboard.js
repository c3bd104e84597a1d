/** Copies text to the clipboard, which browsers reject over plain http from another machine. */
import { byId, setText } from "./dom.js";

const SHOWN_MS = 4000;

/** The page's element `copied` reports the result. @param {string} text */
export async function copyText(text) {
  const result = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  setText(byId("copied"), result ? "Copied" : "The browser does not allow copying here: it requires https or localhost");
  setTimeout(() => setText(byId("copied"), ""), SHOWN_MS);
}
