/** The story of a job: each launch of torchrun, how it ended, where it went on and what had to be done again. */
import { everySecond } from "./clock.js";
import { h, redraw, setText } from "./dom.js";
import { count, duration, localTime, place, secondsBetween, timeOfDay } from "./format.js";
import { END, linkTo } from "./log-link.js";

/** @typedef {import("./api.js").Attempt} Attempt */

export class AttemptStory {
  #list;
  /** @type {Map<string, Attempt>} those that still run, by number */
  #running = new Map();

  /** @param {HTMLElement} list */
  constructor(list) {
    this.#list = list;
    everySecond(() => this.#tick());
  }

  /** @param {Attempt[]} attempts in ascending order */
  show(attempts) {
    this.#running = new Map(attempts.filter(({ ended_at }) => !ended_at).map((attempt) => [String(attempt.number), attempt]));
    this.#tick();
    redraw(this.#list, attempts.map((attempt, index) => item(attempt, attempts[index + 1])).reverse());
  }

  #tick() {
    for (const length of /** @type {NodeListOf<HTMLElement>} */ (this.#list.querySelectorAll("[data-attempt]"))) {
      const attempt = this.#running.get(length.dataset.attempt ?? "");
      if (attempt) setText(length, lengthText(attempt));
    }
  }
}

/** @param {Attempt} attempt */
function lengthText(attempt) {
  return duration(secondsBetween(attempt.started_at, attempt.ended_at));
}

/**
 * @param {Attempt} attempt
 * @param {Attempt | undefined} next
 */
function item(attempt, next) {
  const klass = attempt.ended_at ? (attempt.outcome?.class ?? "unknown") : "running";
  const time = h("time", { datetime: attempt.started_at, title: localTime(attempt.started_at) }, timeOfDay(attempt.started_at));
  const where = place(attempt.outcome);
  return h(
    "li",
    { "data-class": klass },
    h(
      "div",
      { class: "attempt-head" },
      h("strong", {}, `Attempt ${attempt.number}`),
      h("span", { class: "muted" }, time, " · ", h("span", { "data-attempt": attempt.number }, lengthText(attempt))),
      h("span", { class: "outcome" }, klass.replaceAll("_", " ")),
    ),
    attempt.outcome && h("p", {}, h("bdi", {}, attempt.outcome.message), where ? h("span", { class: "place" }, where) : null, " ", logLink(attempt)),
    stepsText(attempt, next) && h("p", { class: "muted" }, stepsText(attempt, next)),
    attempt.reason && klass !== "success" && h("p", { class: "muted" }, attempt.reason),
    ...attempt.faults.map((fault) => h("p", { class: "muted" }, faultText(fault))),
  );
}

/**
 * To what the rank that failed wrote last; nothing where no rank is to blame.
 *
 * @param {Attempt} attempt
 */
function logLink({ number, outcome }) {
  if (outcome?.rank === null || outcome?.rank === undefined || outcome.class === "success") return null;
  const place = { rank: outcome.rank, stream: "stderr", attempt: number, offset: END };
  return h("a", { href: linkTo(place), "data-focus": `log-${number}` }, `Last words of rank ${outcome.rank}`);
}

/** @param {import("./api.js").Fault} fault */
function faultText({ fault, rank, snapshot }) {
  const victim = rank !== null ? ` rank ${rank}` : snapshot !== null ? ` of step ${count(snapshot)}` : "";
  return `fault injected: ${fault}${victim}`;
}

/**
 * Nothing of an attempt that has told no steps.
 *
 * @param {Attempt} attempt
 * @param {Attempt | undefined} next
 */
function stepsText(attempt, next) {
  if (attempt.last_step === null && !attempt.resumed_from_step) return "";
  const from = attempt.resumed_from_step ? `went on from step ${count(attempt.resumed_from_step)}` : "began at step 0";
  const to = attempt.last_step === null ? "" : `, reached step ${count(attempt.last_step)}`;
  const lost = next && attempt.last_step !== null ? attempt.last_step - (next.resumed_from_step ?? 0) : 0;
  return `${from}${to}${lost > 0 ? `; ${count(lost)} ${lost === 1 ? "step" : "steps"} done again` : ""}`;
}
