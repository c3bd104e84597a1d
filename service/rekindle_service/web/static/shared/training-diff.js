/**
 * The comparison of two trainings by their digests: the first step that differs, in what, and what can explain it.
 *
 * @import { FileDifference, JobDiff, StepDifference } from "./api-types.d.ts"
 */
import { h } from "./dom.js";
import { count, rankNames } from "./format.js";

/** A longer difference is folded. */
const MAX_OPEN_LINES = 60;
/** Parts of a step whose name says too little. @type {Record<string, string>} */
const PARTS = { order: "order of the samples", batch: "content of the batch", random: "random numbers", forward: "logged values", optimizer: "optimizer state", parts: "other saved state" };

/** @param {JobDiff} found @returns {Element[]} */
export function diffNodes({ verdict, summary, notes, difference, causes, code, next_command: command }) {
  return [
    h("p", { class: "verdict", "data-verdict": verdict }, h("bdi", {}, summary)),
    ...notes.map((note) => h("p", { class: "muted" }, h("bdi", {}, note))),
    ...(difference ? [differenceTable(difference)] : []),
    ...(causes.length ? [h("p", {}, "The jobs differ in:"), h("ul", { class: "causes" }, ...causes.map(({ text }) => h("li", {}, h("bdi", {}, text))))] : []),
    ...code.map(fileNode),
    ...(command ? [h("p", {}, "Find the step: ", h("code", {}, command))] : []),
  ];
}

/** @param {StepDifference} difference */
function differenceTable({ step, epoch, world_size: size, phases }) {
  const title = `Step ${count(step)}, epoch ${count(epoch)}`;
  const head = h("tr", {}, ...[title, "Ranks", "Tensors or values"].map((text) => h("th", { scope: "col" }, text)));
  const body = phases.map(({ phase, ranks, names, count: all }) => {
    const named = names.flatMap((name, index) => [index ? ", " : "", h("code", {}, name)]);
    const where = ranks.length === size ? "all" : rankNames(ranks).replace(/^\w+ /, "");
    return h("tr", {}, h("th", { scope: "row" }, PARTS[phase] ?? phase), h("td", {}, where), h("td", {}, ...named, names.length && all > names.length ? ` and ${count(all - names.length)} more` : null));
  });
  return h("div", { class: "scroll-x", tabindex: 0, role: "region", "aria-label": "What differs" }, h("table", {}, h("thead", {}, head), h("tbody", {}, ...body)));
}

/** @param {FileDifference} file */
function fileNode({ path, change, diff }) {
  const title = h("summary", {}, h("code", {}, path), " ", h("span", { class: "muted" }, change));
  const kind = (/** @type {string} */ line) => (line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "");
  const lines = (diff ?? "").split("\n").slice(2).map((line) => h("span", { class: kind(line) }, `${line}\n`));
  const body = diff === null ? h("p", { class: "muted" }, "Its lines are not shown.") : h("pre", { tabindex: 0 }, ...lines);
  return h("details", { open: diff !== null && lines.length < MAX_OPEN_LINES }, title, body);
}
