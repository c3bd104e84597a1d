/**
 * What this browser remembers between visits. One without storage, as in a private window, forgets it with the page.
 */

/** @param {string} key @returns {unknown} null where nothing usable is stored */
export function remembered(key) {
  try {
    return JSON.parse(localStorage.getItem(key) ?? "null");
  } catch {
    return null;
  }
}

/** @param {string} key @param {unknown} value */
export function remember(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {}
}

/** A stored list of texts. @param {string} key @returns {string[]} */
export function rememberedTexts(key) {
  const value = remembered(key);
  return Array.isArray(value) ? value.filter((each) => typeof each === "string") : [];
}

// --- tab state: The state of the jobs in the tab of the browser: its title, and a mark on its icon.

const COLOURS = { failed: "#d33a2c", running: "#2a9d5c" };
const title = document.title;

/** @param {number} needing how many things need a person @param {number} running jobs that run */
export function showInTab(needing, running) {
  const parts = [needing && `${needing} need${needing === 1 ? "s" : ""} you`, running && `${running} running`];
  document.title = [...parts.filter(Boolean), title].join(" · ");
  const icon = document.querySelector('link[rel="icon"]');
  if (!(icon instanceof HTMLLinkElement)) return;
  icon.dataset.plain ??= icon.href;
  icon.href = needing ? marked(COLOURS.failed) : running ? marked(COLOURS.running) : icon.dataset.plain;
}

/** A flame's ring with a dot. @param {string} colour */
function marked(colour) {
  const ring = '<path d="M26.6 11.2A12 12 0 1 0 28 17" fill="none" stroke="#d9622b" stroke-width="3" stroke-linecap="round"/>';
  const dot = `<circle cx="16" cy="16" r="7" fill="${colour}"/>`;
  return `data:image/svg+xml,${encodeURIComponent(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">${ring}${dot}</svg>`)}`;
}
