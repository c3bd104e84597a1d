/**
 * The attempts of a job: each launch of torchrun, how it ended, where it resumed and how many steps were replayed.
 *
 * @import { AttemptPublic as Attempt } from "../shared/api-types.d.ts"
 */
import { END, linkTo } from "../log/log-permalink.js";
import { compareUrl } from "../shared/api.js";
import { byId, h, patchChildren, setText } from "../shared/dom.js";
import { count, counted, duration, failureLocation, localTime, secondsBetween, timeOfDay } from "../shared/format.js";
import { idInUrl } from "../shared/live-page.js";
import { join } from "../shared/shell-words.js";
import { everySecond } from "../shared/timing.js";

const list = byId("attempts");
/** @type {Map<string, Attempt>} those that still run, by number */
let running = new Map();
everySecond(tick);

/** @param {Attempt[]} attempts in ascending order @param {(number: number) => void} onExplain shows what happened to one */
export function showAttemptList(attempts, onExplain) {
  running = new Map(attempts.filter(({ ended_at }) => !ended_at).map((attempt) => [String(attempt.number), attempt]));
  tick();
  patchChildren(list, attempts.map((attempt) => item(attempt, onExplain)).reverse());
  byId("attempts-empty").hidden = attempts.length > 0;
}

function tick() {
  for (const node of /** @type {NodeListOf<HTMLElement>} */ (list.querySelectorAll("[data-attempt]"))) {
    const attempt = running.get(node.dataset.attempt ?? "");
    if (attempt) setText(node, durationOf(attempt));
  }
}

/** @param {Attempt} attempt */
const durationOf = (attempt) => duration(secondsBetween(attempt.started_at, attempt.ended_at));

/** @param {Attempt} attempt @param {(number: number) => void} onExplain */
function item(attempt, onExplain) {
  const { number, outcome, reason, faults, started_at: startedAt } = attempt;
  const outcomeClass = attempt.ended_at ? (outcome?.class ?? "unknown") : "running";
  const time = h("time", { datetime: startedAt, title: localTime(startedAt) }, timeOfDay(startedAt));
  const location = failureLocation(outcome);
  const steps = stepsText(attempt);
  return h(
    "li",
    { "data-class": outcomeClass },
    h(
      "div",
      { class: "attempt-head" },
      h("strong", {}, `Attempt ${number}`),
      h("span", { class: "muted" }, time, " · ", h("span", { "data-attempt": number }, durationOf(attempt))),
      h("span", { class: "outcome" }, outcomeClass.replaceAll("_", " ")),
    ),
    outcome && h("p", {}, h("bdi", {}, outcome.message), location ? h("span", { class: "location" }, location) : null, " ", logLink(attempt), " ", explainButton(attempt, onExplain)),
    steps && h("p", { class: "muted" }, h("bdi", {}, steps)),
    number > 1 && h("p", {}, h("a", { href: compareUrl([`${idInUrl()}@${number - 1}`, `${idInUrl()}@${number}`]), "data-focus": `compare-${number}` }, `Compare with attempt ${number - 1}`)),
    attempt.args && h("p", { class: "muted" }, "Arguments: ", h("code", {}, join(attempt.args))),
    reason && outcomeClass !== "success" && h("p", { class: "muted" }, reason),
    ...faults.map((fault) => h("p", { class: "muted" }, faultText(fault))),
  );
}

/** Nothing for an attempt that ended as it should. @param {Attempt} attempt @param {(number: number) => void} onExplain */
function explainButton({ number, outcome }, onExplain) {
  if (["success", "preempted", "cancelled"].includes(outcome?.class)) return null;
  return h("button", { type: "button", class: "link", "data-focus": `explain-${number}`, onclick: () => onExplain(number) }, "What happened");
}

/** To the last output of the failed rank; nothing where no rank caused the failure. @param {Attempt} attempt */
function logLink({ number, outcome }) {
  if (typeof outcome?.rank !== "number" || outcome.class === "success") return null;
  const href = linkTo({ rank: outcome.rank, stream: "stderr", attempt: number, offset: END });
  return h("a", { href, "data-focus": `log-${number}` }, `Last output of rank ${outcome.rank}`);
}

/** @param {Attempt["faults"][number]} fault */
function faultText({ fault, rank, snapshot }) {
  const target = rank !== null ? ` in rank ${rank}` : snapshot !== null ? ` of step ${count(snapshot)}` : "";
  return `fault injected: ${fault}${target}`;
}

/** Why it began where it did, and how far it came. @param {Attempt} attempt */
function stepsText({ start, last_step: last, replayed_steps: replayed }) {
  const course = [start, last !== null && `reached step ${count(last)}`].filter(Boolean).join(", ");
  return `${course}${replayed ? `; ${counted(replayed, "step")} replayed` : ""}`;
}
