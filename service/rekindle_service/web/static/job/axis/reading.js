/**
 * The axis at its cursor, in words: "14:05:07, attempt 2, step 120, rank 1: train, waits 40 %, device 87 %". Pure.
 *
 * @import { AttemptLanes, Lanes, RankLane } from "../../shared/api-types.d.ts"
 * @import { Course, Unit } from "./axis-model.js"
 * @import { View } from "./view-state.js"
 */
import { count } from "../../shared/format.js";
import { stepAt } from "./axis-model.js";

/** @param {number | null} time seconds since 1970; null: not known @param {number} cursor on the axis @param {Unit} unit @param {View} view @param {Course[]} courses @param {Lanes | null} lanes */
export function readingAt(time, cursor, { by, toStep }, { rank }, courses, lanes) {
  if (time === null) return `step ${count(Math.round(toStep(cursor)))}`;
  const attempt = courses.findLast(({ begin, end }) => begin <= time && time <= end)?.attempt ?? null;
  const step = by === "time" ? stepAt(courses, time) : toStep(cursor);
  const parts = [clockText(time), attempt === null ? "between attempts" : `attempt ${attempt}`, ...(by === "epoch" ? [`epoch ${cursor.toFixed(2)}`] : []), ...(step ? [`step ${count(Math.floor(step))}`] : [])];
  const found = lanes?.attempts.find((each) => each.attempt === attempt);
  return [...parts, ...(found ? rankTexts(found, lanes?.phases ?? [], rank, time) : [])].join(" · ");
}

/** In the browser's zone, which is named. @param {number} time seconds since the epoch */
const clockText = (time) => new Date(time * 1000).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short" });

/** Of the chosen rank; of all where none is. @param {AttemptLanes} attempt @param {string[]} phases @param {number | null} rank @param {number} time */
function rankTexts({ at, ranks }, phases, rank, time) {
  const index = at.findIndex((each) => each >= time);
  const point = index < 0 ? at.length - 1 : index;
  if (point < 0) return [];
  const chosen = ranks.find((lane) => lane.rank === rank);
  if (chosen) return [`rank ${chosen.rank}: ${laneText(chosen, phases, point)}`];
  const waiting = ranks.filter((lane) => (lane.waiting[point] ?? 0) >= 0.5).length;
  return waiting ? [`${waiting} of ${ranks.length} ranks wait for others`] : [];
}

/** @param {RankLane} lane @param {string[]} phases @param {number} point */
function laneText({ exit, phase, waiting, use }, phases, point) {
  const [now, wait, busy] = [phase[point], waiting[point], use[point]];
  if (now === null) return exit ?? "did not run";
  const facts = [phases[now], wait !== null && `waits ${Math.round(100 * wait)} %`, busy !== null && `device ${Math.round(busy)} %`, exit !== null && point === phase.length - 1 && exit];
  return facts.filter(Boolean).join(", ");
}
