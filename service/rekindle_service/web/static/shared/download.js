/** Saves a file that the page itself has made. */
import { h } from "./dom.js";

/**
 * @param {string} name characters that file systems reject become a dash
 * @param {Blob | string} content a string is a data URL
 */
export function saveAs(name, content) {
  const url = typeof content === "string" ? content : URL.createObjectURL(content);
  h("a", { href: url, download: name.replaceAll(/[^\w.-]+/g, "-").slice(-120) }).click();
  if (typeof content !== "string") setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
