/**
 * The checkpoints that the script itself writes, latest first, as far as they are learned.
 *
 * @import { CheckpointPublic as Checkpoint, JobPublic as Job } from "../shared/api-types.d.ts"
 */
import { byId, h, patchChildren, setText } from "../shared/dom.js";
import { ago, bytes, localTime } from "../shared/format.js";
import { everySecond } from "../shared/ticker.js";

everySecond(() => byId("checkpoints").querySelectorAll("time").forEach((node) => setText(node, ago(node.dateTime))));

/** @param {Job} job */
export function showCheckpoints({ checkpoints }) {
  byId("checkpoints-card").hidden = checkpoints.length === 0;
  patchChildren(byId("checkpoints"), checkpoints.map(item));
}

/** @param {Checkpoint} checkpoint */
function item({ path, kind, bytes: size, written_at: writtenAt, attempt, complete, loaded }) {
  const facts = [bytes(size), kind, attempt ? `attempt ${attempt}` : "older than the job", ...(loaded ? [`loaded by attempt ${loaded}`] : [])];
  const time = h("time", { datetime: writtenAt ?? "", title: localTime(writtenAt) }, ago(writtenAt));
  return h(
    "li",
    {},
    h("div", { class: "snapshot-head" }, h("bdi", {}, path), complete ? null : h("span", { class: "late" }, "incomplete")),
    h("p", { class: "muted" }, `${facts.join(" · ")} · `, time),
  );
}
