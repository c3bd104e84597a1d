/** The snapshots that the job could go on from, newest first, and how often they are taken. */
import { byId, h, setText } from "./dom.js";
import { bytes, count, localTime, timeOfDay } from "./format.js";

/**
 * @param {Awaited<ReturnType<typeof import("./api.js").readSnapshots>>} taken
 */
export function showSnapshots({ items, cadence }) {
  setText(byId("snapshots-cadence"), cadence === null ? "" : `Taken ${cadence}.`);
  byId("snapshots-cadence").hidden = cadence === null;
  byId("snapshots-empty").hidden = items.length > 0;
  byId("snapshots-table").hidden = items.length === 0;
  byId("snapshots").replaceChildren(
    ...items.map((item) =>
      h(
        "tr",
        {},
        h("th", { scope: "row", class: "number" }, count(item.step)),
        h("td", { class: "number minor" }, count(item.epoch)),
        h("td", { class: "number" }, count(item.world_size)),
        h("td", { class: "number" }, bytes(item.bytes)),
        h("td", {}, item.verified ? "verified" : h("span", { class: "late" }, "damaged"), item.best ? `, best (${Number(item.score?.toPrecision(6))})` : ""),
        h("td", {}, h("time", { datetime: item.created_at, title: localTime(item.created_at) }, timeOfDay(item.created_at))),
      ),
    ),
  );
}
