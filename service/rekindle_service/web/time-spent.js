/** What the time of a job went into, piece by piece in order: the pure part of the timeline. */

/** @typedef {import("./api.js").Attempt} Attempt */
/**
 * @typedef {object} Piece
 * @property {"waiting" | "starting" | "training" | "lost"} kind `lost`: training that the next attempt did again
 * @property {number} seconds
 * @property {number | null} attempt the one it belongs to; none where the job waits between two
 */

/**
 * @param {import("./api.js").Job} job
 * @param {Attempt[]} attempts in ascending order
 * @param {number} now milliseconds since the epoch
 * @returns {Piece[]} those that took any time
 */
export function timeSpent(job, attempts, now) {
  /** @type {Piece[]} */
  const pieces = [];
  let at = Date.parse(job.created_at);
  attempts.forEach((attempt, index) => {
    const began = Date.parse(attempt.started_at ?? "") || at;
    const ended = Date.parse(attempt.ended_at ?? "") || now;
    const ran = Math.min(Date.parse(attempt.ranks_running_at ?? "") || ended, ended);
    const lost = lostShare(attempt, attempts[index + 1]) * (ended - ran);
    pieces.push(
      { kind: "waiting", seconds: (began - at) / 1000, attempt: null },
      { kind: "starting", seconds: (ran - began) / 1000, attempt: attempt.number },
      { kind: "training", seconds: (ended - ran - lost) / 1000, attempt: attempt.number },
      { kind: "lost", seconds: lost / 1000, attempt: attempt.number },
    );
    at = ended;
  });
  const over = Date.parse(job.ended_at ?? "") || now;
  pieces.push({ kind: "waiting", seconds: (over - at) / 1000, attempt: null });
  return pieces.filter((piece) => piece.seconds > 0);
}

/**
 * The part of an attempt's steps that the next one did again, from 0 to 1.
 *
 * @param {Attempt} attempt
 * @param {Attempt | undefined} next
 */
function lostShare(attempt, next) {
  if (!next || attempt.last_step === null) return 0;
  const done = attempt.last_step - (attempt.resumed_from_step ?? 0);
  const again = attempt.last_step - (next.resumed_from_step ?? 0);
  return done > 0 ? Math.min(1, Math.max(0, again / done)) : 0;
}
