/**
 * The steps with digests as a thin lane, and the steps at which ranks have silently diverged as marks on it.
 *
 * @import { AttemptPublic as Attempt, DigestedStepPublic as DigestedStep, DigestedSteps, JobPublic as Job } from "../../shared/api-types.d.ts"
 * @import { Scale } from "../../charts/chart-frame.js"
 * @import { Course } from "./axis-model.js"
 * @typedef {(step: number, reason?: string) => void} OnReplay
 */
import { place } from "../../charts/axis-surface.js";
import { unitOf } from "../../charts/chart-data.js";
import { call } from "../../shared/api.js";
import { byId, h, patchChildren } from "../../shared/dom.js";
import { count, counted } from "../../shared/format.js";
import { positionsWithin, timesOf } from "./axis-model.js";

const PAGE = 2000;
/** More marks cannot be distinguished. */
const MAX_DRAWN = 1000;
const DIVERGENCE = /silent divergence in steps? (?:\d+ to )?(\d+): .*/s;

/** All steps with digests. @param {string} jobId @param {DigestedStep[]} known the first of them, ascending */
export async function readDigests(jobId, known) {
  const items = [...known];
  for (let after = /** @type {number | null} */ (items.at(-1)?.step ?? -1); after !== null; ) {
    const page = /** @type {DigestedSteps} */ (await call("GET /jobs/{job_id}/digests", { job_id: jobId, after, limit: PAGE }));
    items.push(...page.items);
    after = page.next;
  }
  return items;
}

/**
 * @param {Scale} scale @param {Course[]} courses @param {DigestedStep[]} digests ascending
 * @param {Job} job @param {Attempt[]} attempts @param {OnReplay | null} onReplay null: the job cannot be replayed now
 */
export function drawDigests(scale, courses, digests, { attempt, notice }, attempts, onReplay) {
  const texts = [...attempts.map(({ number, outcome }) => ({ attempt: number, text: outcome?.message })), { attempt, text: notice }];
  const marks = texts.flatMap((each) => {
    const [text, step] = DIVERGENCE.exec(each.text ?? "") ?? [];
    return text ? [divergence(scale, courses, { attempt: each.attempt, step: Number(step) }, text, onReplay)] : [];
  });
  byId("digest-row").hidden = !digests.length && !marks.length;
  byId("digest-steps").setAttribute("aria-label", `Digests of ${counted(digests.length, "step")}${digests.length ? `, the last of step ${count(digests[digests.length - 1].step)}` : ""}`);
  const [low, high] = positionsWithin(courses, unitOf("step", null), [scale.min, scale.max]) ?? [0, 0];
  const shown = digests.filter(({ step }) => step >= low && step <= high);
  const drawn = shown.filter((_, index) => index % Math.ceil(shown.length / MAX_DRAWN) === 0);
  patchChildren(byId("digest-steps"), timesOf(courses, drawn).map((time) => place(h("span"), scale, time)));
  patchChildren(byId("divergences"), marks);
}

/** @param {Scale} scale @param {Course[]} courses @param {{attempt: number, step: number}} at @param {string} text @param {OnReplay | null} onReplay */
function divergence(scale, courses, at, text, onReplay) {
  const attributes = { type: "button", class: "divergence", title: text, "aria-label": text, "data-focus": `${at.attempt} ${at.step}`, disabled: !onReplay };
  return place(h("button", { ...attributes, onclick: () => onReplay?.(at.step, text) }), scale, timesOf(courses, [at])[0] ?? null);
}
