/**
 * One timer for every text that ages while nothing happens: heartbeats, ages, "next try in 3 s".
 */

/** @type {Set<() => void>} */
const listeners = new Set();

setInterval(() => {
  if (!document.hidden) listeners.forEach((listener) => listener());
}, 1000);

/**
 * Call `listener` about once a second while the page can be seen.
 *
 * @param {() => void} listener
 */
export function everySecond(listener) {
  listeners.add(listener);
}
