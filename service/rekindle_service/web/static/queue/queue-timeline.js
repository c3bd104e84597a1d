/**
 * Which job held each slot, holds it, and will probably get it: a line for each slot, a bar for each job, now in the
 * middle. What is right of now is a prediction, and hatched.
 *
 * @import { QueueTimeline, SlotUse as Use } from "../shared/api-types.d.ts"
 * @typedef {{from: number, to: number, now: number}} Span milliseconds since the epoch
 * @typedef {{key: string, use: Use, row: number, rows: number, span: Span}} Bar on `rows` slots from `row` on, which may be fractions
 */
import { axisTicks } from "../charts/ticks.js";
import { call, jobUrl } from "../shared/api.js";
import { remember, remembered } from "../shared/browser-storage.js";
import { byId, h, KeyedChildren, setText } from "../shared/dom.js";
import { counted, startTime } from "../shared/format.js";
import { latestWins } from "../shared/timing.js";

const KEY = "rekindle-timeline-hours";
const LINE = 1.3; // rem: height of a slot
const TICKS = 5;

const hours = byId("timeline-hours", HTMLSelectElement);
hours.value = String(remembered(KEY) ?? 2);
hours.addEventListener("change", () => {
  remember(KEY, hours.value);
  void showTimeline();
});

/** @type {KeyedChildren<Bar, BarView>} */
const bars = new KeyedChildren(byId("timeline-bars"), ({ key }) => key, () => new BarView());

export const showTimeline = latestWins(() => call("GET /queue/timeline", { hours: Number(hours.value) || 2 }), draw);

/** @param {QueueTimeline} timeline */
function draw({ at, start, end, slots, items }) {
  const [from, to, now] = [start, end, at].map(milliseconds);
  const span = { from, to, now };
  byId("timeline-slots").replaceChildren(...slots.map((name) => h("li", {}, name)));
  byId("timeline-lines").style.height = `${slots.length * LINE}rem`;
  bars.show(items.flatMap((use, index) => barsOf(use, slots, span, sharing(use, items.slice(0, index)))));
  const ticks = axisTicks("time", from / 1000, to / 1000, TICKS);
  byId("timeline-ticks").replaceChildren(...ticks.map((tick) => placed(h("li", {}, tick.label), share(tick.at * 1000, span))));
  const known = items.filter((use) => use.state === "queued" && milliseconds(use.started_at) >= now).length;
  setText(byId("timeline-known"), `Hatched: predicted. The start of ${counted(known, "queued job")} is known in this time.`);
}

/** @param {string | null} time */
const milliseconds = (time) => Date.parse(time ?? "");

/** @param {number} time @param {Span} span */
const share = (time, { from, to }) => Math.min(1, Math.max(0, (time - from) / (to - from)));

/** @param {HTMLElement} node @param {number} left fraction, as `right` @param {number} [right] */
function placed(node, left, right = left) {
  node.style.left = `${left * 100}%`;
  node.style.width = right > left ? `${(right - left) * 100}%` : "";
  return node;
}

/** What other jobs have of its slots at its begin, 0 to 1. @param {Use} use @param {Use[]} before it */
function sharing({ slots, share: own, started_at: begin }, before) {
  const beside = before.filter((other) => slots.includes(other.slots[0]) && !(milliseconds(other.ended_at) <= milliseconds(begin)));
  return own < 1 ? Math.min(1 - own, beside.reduce((sum, other) => sum + other.share, 0)) : 0;
}

/**
 * One bar for each group of adjacent slots.
 *
 * @param {Use} use @param {string[]} slots @param {Span} span @param {number} offset in a slot, 0 to 1 @returns {Bar[]}
 */
function barsOf(use, slots, span, offset) {
  const rows = use.slots.map((name) => slots.indexOf(name));
  const first = rows.filter((row) => !rows.includes(row - 1));
  const last = rows.filter((row) => !rows.includes(row + 1));
  return first.map((row, index) => ({ key: `${use.job} ${use.started_at} ${row}`, use, row: row + offset, rows: (last[index] - row + 1) * use.share, span }));
}

class BarView {
  #text = h("bdi");
  #predicted = h("span", { class: "predicted", "aria-hidden": "true" });
  #link = h("a", { class: "use" }, this.#predicted, this.#text);
  node = h("li", {}, this.#link);

  /** @param {Bar} bar */
  update({ use, row, rows, span }) {
    const begin = milliseconds(use.started_at);
    const unknownEnd = use.state === "queued" || begin > span.now ? span.to : span.now;
    const [left, right] = [share(begin, span), share(use.ended_at ? milliseconds(use.ended_at) : unknownEnd, span)];
    const known = right > left ? Math.min(1, Math.max(0, (share(span.now, span) - left) / (right - left))) : 1;
    const name = use.job ? `#${use.number} ${use.name}` : "a job of another person";
    this.node.dataset.state = use.state;
    this.node.classList.toggle("open", !use.ended_at);
    placed(this.node, left, right);
    this.node.style.top = `${row * LINE}rem`;
    this.node.style.height = `${rows * LINE}rem`;
    placed(this.#predicted, known, 1);
    this.#predicted.hidden = known >= 1;
    setText(this.#text, name);
    this.#link.title = `${name} on ${use.slots.join(", ")}: ${timesText(use, begin > span.now, span.now)}`;
    this.#link.setAttribute("aria-label", this.#link.title);
    if (use.job) this.#link.href = jobUrl(use.job);
  }
}

/** @param {Use} use @param {boolean} starts in the future @param {number} now */
function timesText({ state, started_at: begin, ended_at: end }, starts, now) {
  const until = !end ? "nobody knows how long" : milliseconds(end) > now ? `probably until ${startTime(end)}` : `until ${startTime(end)}`;
  return `${starts ? "starts about" : `${state}, since`} ${startTime(begin)}, ${until}`;
}
