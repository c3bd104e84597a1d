/**
 * The moment and the range that the page of a job shows, kept in the fragment of its URL, so that a link shows the same:
 * `#t=1700000000.5&from=…&to=…&by=epoch&attempt=2&rank=1&stream=stderr`. Other fragments, such as permalinks into a log,
 * are no view and stay until something is set.
 *
 * @typedef {"time" | "step" | "epoch"} Axis
 * @typedef {object} View null: not set
 * @property {number | null} t the cursor, in seconds since the epoch
 * @property {number | null} from the beginning of the range, in seconds since the epoch
 * @property {number | null} to its end
 * @property {Axis | null} by the axis of the metrics
 * @property {number | null} attempt
 * @property {number | null} rank
 * @property {"stdout" | "stderr" | null} stream
 */

const NUMBERS = /** @type {const} */ (["t", "from", "to", "attempt", "rank"]);
/** Later than any time, and more than any number of steps. */
const MAX = 1e15;
const AXES = /** @type {const} */ (["time", "step", "epoch"]);

/** @param {string} hash of a URL @returns {View | null} null where it is none; values that cannot be are not set */
export function parseView(hash) {
  if (!/^#\w+=/.test(hash)) return null;
  const values = new URLSearchParams(hash.slice(1));
  const [t, from, to, attempt, rank] = NUMBERS.map((name) => number(values.get(name)));
  const stream = values.get("stream");
  const ranged = from !== null && to !== null && from < to;
  return {
    t,
    from: ranged ? from : null,
    to: ranged ? to : null,
    by: AXES.find((each) => each === values.get("by")) ?? null,
    attempt: whole(attempt),
    rank: whole(rank),
    stream: stream === "stdout" || stream === "stderr" ? stream : null,
  };
}

/** @param {View} view @returns {string} empty where nothing is set */
export function formatView(view) {
  const set = Object.entries(view).filter(([, value]) => value !== null);
  const query = set.map(([name, value]) => `${name}=${typeof value === "number" ? exact(value) : value}`).join("&");
  return query && `#${query}`;
}

/** As exact as a URL says it. @param {number} value */
const exact = (value) => Number(value.toFixed(3));

/** @param {string | null} text */
function number(text) {
  const value = text === null || text.trim() === "" ? NaN : Number(text);
  return value >= 0 && value < MAX ? value : null;
}

/** @param {number | null} value */
const whole = (value) => (value !== null && Number.isInteger(value) ? value : null);

/** @type {View} */
const NOTHING = { t: null, from: null, to: null, by: null, attempt: null, rank: null, stream: null };

let view = parseView(location.hash) ?? NOTHING;
/** @type {Set<(view: View, before: View) => void>} */
const listeners = new Set();

export const getView = () => view;

/**
 * Change a part of the view, and the URL with it; the browser's history gets no entry. The range is then that of the URL.
 *
 * @param {Partial<View>} part
 */
export function setView(part) {
  const next = { ...view, ...part };
  const [from, to] = [next.from, next.to].map((value) => (value === null ? null : exact(value)));
  if (!change({ ...next, from, to })) return;
  history.replaceState(history.state, "", location.pathname + location.search + formatView(view));
}

/** Call `listener` after every change, also one of the URL by a link. @param {(view: View, before: View) => void} listener */
export const onView = (listener) => void listeners.add(listener);

/** @param {View} next @returns {boolean} whether it is another one */
function change(next) {
  const before = view;
  if (formatView(before) === formatView(next)) return false;
  view = next;
  listeners.forEach((listener) => listener(view, before));
  return true;
}

addEventListener("hashchange", () => {
  const next = parseView(location.hash);
  if (next) change(next);
});
