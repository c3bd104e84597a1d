/**
 * The cursor that the log shares with the time axis: a line that the user points at or chooses moves it, and the log shows
 * the line of the moment that is chosen elsewhere or that a shared link names.
 *
 * @typedef {{time: number, rank: number, stream: string}} Line time in seconds since the epoch
 * @typedef {{showTime: (at: number, source: {rank: number | null, stream: string | null, attempt: number | null}) => Promise<void>}} Log
 */
import { byId } from "../shared/dom.js";
import { getView, onView, setView } from "../job/axis/view-state.js";

/** The moment that the log shows, in seconds since the epoch. @type {number | null} */
let shown = null;

/** @param {Line} line */
export function moveCursor({ time, rank, stream }) {
  shown = time;
  setView({ t: time, rank, stream: stream === "stderr" ? "stderr" : "stdout" });
}

/** Show the moment of the cursor, unless the log shows it already. @param {Log} log that has an attempt */
export function showCursor(log) {
  const { t, rank, stream, attempt } = getView();
  if (t === null || t === shown) return;
  shown = t;
  void log.showTime(t, { rank, stream, attempt });
}

/** Point at the moment of the line that the pointer is on. @param {(at: number | null) => void} onPoint null: the pointer has left the log */
export function pointAtLines(onPoint) {
  for (const node of [byId("log"), byId("log-merged")]) {
    node.addEventListener("pointerover", ({ target }) => {
      const row = target instanceof Element ? target.closest(".log-line") : null;
      onPoint(row instanceof HTMLElement && row.dataset.at ? Number(row.dataset.at) : null);
    });
    node.addEventListener("pointerleave", () => onPoint(null));
  }
}

/** @param {Log} log */
export const followCursor = (log) => onView(() => showCursor(log));
