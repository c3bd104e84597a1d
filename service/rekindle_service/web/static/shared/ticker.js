/** One timer for every text that changes with time alone: heartbeats, ages, "retry in 3 s". */

/** @type {Set<() => void>} */
const listeners = new Set();

setInterval(() => {
  if (!document.hidden) listeners.forEach((listener) => listener());
}, 1000);

/** Call `listener` about once a second while the page is visible. @param {() => void} listener */
export const everySecond = (listener) => void listeners.add(listener);
