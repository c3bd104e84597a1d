/** Copying to the clipboard, which a browser refuses on a plain http address of another machine. */
import { byId, setText } from "./dom.js";

const TOLD_MS = 4000;

/** The page's element `copied` tells what came of it. @param {string} text */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    setText(byId("copied"), "Copied");
  } catch {
    setText(byId("copied"), "The browser does not allow copying here: it needs https or localhost");
  }
  setTimeout(() => setText(byId("copied"), ""), TOLD_MS);
}
