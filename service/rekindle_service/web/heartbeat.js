/** How long a rank has given no sign of life. Pure. */

/** Seconds after which it is worth a look. */
const LATE = 10;

/**
 * @param {import("./api.js").Rank} rank
 * @param {number} since seconds since the rank was told of
 * @returns {number | null} null for one that does not live
 */
export function heartbeatAge(rank, since) {
  const alive = rank.state === "running" || rank.state === "starting";
  return alive && rank.heartbeat_age !== null ? rank.heartbeat_age + since : null;
}

/** @param {number | null} age in seconds */
export const isLate = (age) => age !== null && age > LATE;
