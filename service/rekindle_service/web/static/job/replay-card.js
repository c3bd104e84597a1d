/**
 * The card of a job that computes steps of another again: which, whether they came out the same, and what layers computed.
 *
 * @import { JobPublic as Job, LayersPublic as Layers } from "../shared/api-types.d.ts"
 */
import { call, jobUrl, messageOf } from "../shared/api.js";
import { byId, h, setText } from "../shared/dom.js";
import { NONE, count, significant } from "../shared/format.js";
import { hasEnded } from "../shared/job-state.js";
import { diffNodes } from "../shared/training-diff.js";

const MAX_SAMPLES = 32;

/** When the job that is shown ended; undefined before it is shown. @type {string | null | undefined} */
let shown;
const rank = byId("layers-rank", HTMLSelectElement);

/** @param {Job} job */
export function showReplay(job) {
  if (job.replay === null || shown === job.ended_at) return;
  if (shown === undefined) void showTitle(job);
  shown = job.ended_at;
  byId("replay-card").hidden = false;
  byId("layers").hidden = !hasEnded(job) || job.record_step === null;
  if (!hasEnded(job)) return setText(byId("replay-diff"), "Once it has ended, its digests are compared with those of the original.");
  const found = call("GET /jobs/{job_id}/diff/{other}", { job_id: job.replay.job, other: job.id });
  const nodes = found.then(diffNodes, (error) => [h("p", { class: "error" }, messageOf(error))]);
  void nodes.then((each) => shown === job.ended_at && byId("replay-diff").replaceChildren(...each));
  rank.replaceChildren(...Array.from({ length: job.world_size ?? 0 }, (_, number) => h("option", { value: number }, String(number))));
  rank.onchange = () => void showLayers(job);
  if (job.record_step !== null) void showLayers(job);
}

/** @param {Job} job */
async function showTitle({ replay, last_step: last }) {
  const { job: id = "", step: first = 0 } = replay ?? {};
  const original = await call("GET /jobs/{job_id}", { job_id: id }).catch(() => null);
  const link = original ? h("a", { href: jobUrl(original.id) }, `job ${original.number} `, h("bdi", {}, original.name)) : "a job that is gone";
  byId("replay-title").replaceChildren("Replay of ", link, first === last ? `, step ${count(first)}` : `, steps ${count(first)} to ${count(last)}`);
}

/** @param {Job} job */
async function showLayers(job) {
  const chosen = rank.value;
  const found = await call("GET /jobs/{job_id}/ranks/{rank}/layers", { job_id: job.id, rank: Number(chosen) }).catch(messageOf);
  if (shown !== job.ended_at || chosen !== rank.value) return;
  const { step, samples, tensors } = typeof found === "string" ? { step: 0, samples: [], tensors: [] } : found;
  const more = samples.length - MAX_SAMPLES;
  const listed = `Samples of step ${count(step)}: ${samples.slice(0, MAX_SAMPLES).join(", ")}${more > 0 ? ` and ${count(more)} more` : ""}`;
  setText(byId("layers-samples"), typeof found === "string" ? found : listed);
  const bad = tensors.find(({ not_finite: number }) => number > 0);
  const where = bad && (bad.phase === "batch" ? `tensor ${bad.name} of the batch` : `${bad.name} (${bad.phase})`);
  setText(byId("layers-found"), where ? `The first values that are not finite are in ${where}.` : "");
  byId("layers-rows").replaceChildren(...tensors.map(row));
}

/** @param {Layers["tensors"][number]} tensor */
function row({ phase, name, shape, low, high, norm, not_finite: bad }) {
  const number = (/** @type {number | null} */ value) => h("td", { class: "number" }, value === null ? NONE : significant(value));
  return h(
    "tr",
    { class: bad > 0 && "late" },
    h("td", {}, phase),
    h("th", { scope: "row" }, h("code", {}, name)),
    h("td", {}, shape.join("x") || NONE),
    number(low),
    number(high),
    number(norm),
    h("td", { class: "number" }, bad > 0 ? count(bad) : NONE),
  );
}
