/** Hands the reader a file that the page itself has made. */
import { h } from "./dom.js";

/**
 * @param {string} name any text: what file systems do not take becomes a dash
 * @param {Blob | string} content a string is an address of data
 */
export function saveAs(name, content) {
  const url = typeof content === "string" ? content : URL.createObjectURL(content);
  const link = /** @type {HTMLAnchorElement} */ (h("a", { href: url, download: name.replaceAll(/[^\w.-]+/g, "-").slice(-120) }));
  link.click();
  if (typeof content !== "string") setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
