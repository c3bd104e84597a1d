/** What this browser remembers between visits. One without storage, as in a private window, forgets it with the page. */

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
