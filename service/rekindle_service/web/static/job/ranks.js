/**
 * The ranks of the latest attempt: a table with a row for each, above it a grid of tiles where there are many, and the
 * Python stack of one. Choosing a rank shows its log.
 *
 * @import { RankPublic as Rank } from "../shared/api-types.d.ts"
 */
import { call, messageOf } from "../shared/api.js";
import { KeyedChildren, byId, h, setText } from "../shared/dom.js";
import { NONE, brief, bytes, count, counted, outOf, speed } from "../shared/format.js";
import { badge, setBadge } from "../shared/job-state.js";
import { everySecond } from "../shared/timing.js";

/** Below this number the table alone gives the overview, except on a phone, which has no room for it. */
const MIN_TILES = 9;
/** Seconds without progress that are usual: the keeper takes a sample every 5. */
const USUAL_SILENCE = 15;

/**
 * @param {Rank} rank @param {number} since seconds since the server reported the rank
 * @returns {number | null} seconds; null for a rank that does not run
 */
function heartbeatAge(rank, since) {
  const alive = rank.state === "running" || rank.state === "starting";
  return alive && rank.heartbeat_age !== null ? rank.heartbeat_age + since : null;
}

/** By the bound of the keeper, which it learns from the job. @param {Rank} rank @param {number | null} age in seconds */
const isLate = ({ hang_timeout: timeout }, age) => age !== null && timeout !== null && age > timeout;

export class Ranks {
  #body = byId("ranks");
  #grid = byId("ranks-grid");
  /** @type {KeyedChildren<Rank, RankRow>} */
  #rows;
  /** @type {KeyedChildren<{rank: Rank, behind: number}, RankTile>} */
  #tiles;

  /** @param {(rank: number) => void} onChoose @param {(rank: number) => void} onStack */
  constructor(onChoose, onStack) {
    this.#rows = new KeyedChildren(this.#body, ({ rank }) => rank, ({ rank }) => new RankRow(rank, onChoose, onStack));
    this.#tiles = new KeyedChildren(this.#grid, ({ rank }) => rank.rank, ({ rank }) => new RankTile(rank.rank, onChoose));
    everySecond(() => this.#rows.views.forEach((row) => row.tick()));
  }

  /** @param {Rank[]} ranks @param {number} chosen the rank whose log is shown */
  show(ranks, chosen) {
    this.#rows.show(ranks);
    this.#grid.hidden = ranks.length < 2;
    this.#grid.classList.toggle("few", ranks.length < MIN_TILES);
    const maxStep = Math.max(...ranks.map(({ step }) => step ?? 0));
    if (!this.#grid.hidden) this.#tiles.show(ranks.map((rank) => ({ rank, behind: maxStep - (rank.step ?? maxStep) })));
    this.#showColumn(".use", ranks.some(({ usage }) => usage));
    this.#showColumn(".host", new Set(ranks.map(({ host }) => host).filter(Boolean)).size > 1);
    this.#showColumn(".device", ranks.some(({ device }) => device !== "cpu"));
    setText(byId("ranks-summary"), summary(ranks));
    byId("ranks-empty").hidden = ranks.length > 0;
    byId("ranks-table").hidden = ranks.length === 0;
    this.mark(chosen);
  }

  /** @param {number} chosen the rank whose log is shown */
  mark(chosen) {
    this.#rows.views.forEach((row, rank) => row.mark(rank === chosen));
    this.#tiles.views.forEach(({ node }, rank) => node.setAttribute("aria-pressed", String(rank === chosen)));
  }

  /** Empty columns leave their room to the last lines. @param {string} cells @param {boolean} shown */
  #showColumn(cells, shown) {
    for (const cell of this.#body.closest("table")?.querySelectorAll(cells) ?? []) /** @type {HTMLElement} */ (cell).hidden = !shown;
  }
}

/** @param {Rank[]} ranks */
function summary(ranks) {
  const steps = ranks.flatMap(({ step }) => (step === null ? [] : [step]));
  const running = ranks.filter(({ state }) => state === "running").length;
  const spread = Math.max(...steps) - Math.min(...steps);
  const together = ranks.length < 2 ? "" : `${running} of ${ranks.length} running${spread > 0 ? `, ${counted(spread, "step")} apart` : ""}`;
  return [together, ...ranks.slice(0, 1).map(silence)].filter(Boolean).join(", ");
}

/** Of all ranks, once the keeper has waited for some. @param {Rank} rank */
function silence({ hang_timeout: timeout, without_progress: seconds, step }) {
  if (seconds === null || timeout === null) return "";
  const usual = step === null ? USUAL_SILENCE : Math.max(USUAL_SILENCE, timeout / 10);
  return seconds <= usual ? "" : `no progress for ${brief(seconds)}, counts as hung after ${brief(timeout)}`;
}

/** Class and text of the cells around the heartbeat, which follows the third. @type {[string, (rank: Rank) => string][]} */
const FIGURES = [
  ["number", ({ step, steps }) => outOf(step, steps)],
  ["number minor", ({ epoch }) => count(epoch)],
  ["number minor", (rank) => (rank.state === "running" ? speed(rank.steps_per_second) : NONE)],
  ["minor host", ({ host }) => host ?? NONE],
  ["minor device", ({ device }) => device ?? NONE],
  ["number minor use", ({ usage }) => (usage ? utilizationText(usage.cpu_percent, usage.devices.at(0)?.utilization_percent ?? null) : NONE)],
  ["number minor use", ({ usage }) => [usage?.rss_bytes, ...(usage?.devices.slice(0, 1) ?? []).map((gpu) => gpu.memory_used_bytes)].map(bytes).join(" + ")],
  ["number minor", ({ pid }) => (pid === null ? NONE : String(pid))],
];

class RankRow {
  #badge = badge("starting");
  #note = h("span", { class: "location" });
  #figures = FIGURES.map(([style]) => h("td", { class: style }));
  #heartbeat = h("td", { class: "number" });
  #lastLine = h("td", { class: "last-line" });
  #button;
  #stack;
  /** @type {Rank | null} */
  #rank = null;
  #receivedAt = 0;
  node;

  /** @param {number} number @param {(rank: number) => void} onChoose @param {(rank: number) => void} onStack */
  constructor(number, onChoose, onStack) {
    const onclick = (/** @type {Event} */ event) => {
      event.stopPropagation();
      onStack(number);
    };
    this.#stack = h("button", { type: "button", class: "link", "aria-label": `Show the stack of rank ${number}`, onclick }, "Stack");
    this.#button = h("button", { type: "button", class: "quiet", "aria-label": `Show the log of rank ${number}` }, String(number));
    this.node = h(
      "tr",
      { class: "choosable", onclick: () => onChoose(number) },
      h("th", { scope: "row" }, this.#button),
      h("td", {}, this.#badge, this.#note, this.#stack),
      ...[...this.#figures.slice(0, 3), this.#heartbeat, ...this.#figures.slice(3), this.#lastLine],
    );
  }

  /** @param {Rank} rank */
  update(rank) {
    this.#rank = rank;
    this.#receivedAt = performance.now();
    setBadge(this.#badge, rank.state);
    setText(this.#note, noteText(rank));
    FIGURES.forEach(([, text], index) => setText(this.#figures[index], text(rank)));
    this.#stack.hidden = rank.state !== "running";
    setText(this.#lastLine, rank.notice ?? rank.last_line ?? "");
    this.#lastLine.title = this.#lastLine.textContent ?? "";
    this.tick();
  }

  /** @param {boolean} chosen */
  mark(chosen) {
    this.node.dataset.chosen = String(chosen);
    this.#button.setAttribute("aria-pressed", String(chosen));
  }

  /** The heartbeat ages between two messages. */
  tick() {
    const rank = this.#rank;
    if (!rank) return;
    const age = heartbeatAge(rank, (performance.now() - this.#receivedAt) / 1000);
    setText(this.#heartbeat, brief(age));
    this.#heartbeat.classList.toggle("late", isLate(rank, age));
    this.#heartbeat.title = rank.hang_timeout === null ? "" : `counts as hung after ${brief(rank.hang_timeout)} without progress`;
  }
}

/** @param {number | null} cpu percent of one core @param {number | null} gpu percent of the time */
function utilizationText(cpu, gpu) {
  const text = cpu === null ? NONE : `${Math.round(cpu)} %`;
  return gpu === null ? text : `${text}, GPU ${Math.round(gpu)} %`;
}

/** @param {Rank} rank */
function noteText(rank) {
  if (rank.signal) return rank.signal;
  if (rank.exit_code) return `exit ${rank.exit_code}`;
  if (rank.straggler !== null) return `straggler: the other ranks wait for it ${Math.round(100 * rank.straggler)} % of the time`;
  return rank.state === "running" && rank.phase ? rank.phase : "";
}

class RankTile {
  #where = h("small");
  node;

  /** @param {number} number @param {(rank: number) => void} onChoose */
  constructor(number, onChoose) {
    this.node = h("button", { type: "button", class: "tile", onclick: () => onChoose(number) }, String(number), this.#where);
  }

  /** @param {{rank: Rank, behind: number}} item `behind`: steps */
  update({ rank, behind }) {
    const [mark, why] = markOf(rank, behind);
    this.node.dataset.state = rank.state;
    this.node.dataset.mark = mark;
    setText(this.#where, rank.state === "running" && rank.step !== null ? count(rank.step) : rank.state);
    const label = [`Rank ${rank.rank}`, rank.state, `step ${outOf(rank.step, rank.steps)}`, why].filter(Boolean).join(", ");
    this.node.title = label;
    this.node.setAttribute("aria-label", label);
  }
}

/**
 * @param {Rank} rank @param {number} behind steps @returns {[mark: "" | "late" | "straggler" | "behind", why: string]}
 */
function markOf(rank, behind) {
  const age = heartbeatAge(rank, 0);
  if (isLate(rank, age)) return ["late", `no heartbeat for ${brief(age)}`];
  if (rank.straggler !== null) return ["straggler", "a straggler: the other ranks wait for it"];
  return behind > 1 && rank.state === "running" ? ["behind", `${counted(behind, "step")} behind`] : ["", ""];
}

let stackRequests = 0;

/** Show the Python stacks of a rank's threads in a dialog. @param {string} jobId @param {number} rank */
export async function showStack(jobId, rank) {
  const request = ++stackRequests;
  setText(byId("stack-title"), `Python stacks of rank ${rank}`);
  setText(byId("stack-text"), "Reading the stacks …");
  byId("stack", HTMLDialogElement).showModal();
  const text = await call("POST /jobs/{job_id}/ranks/{rank}/stack", { job_id: jobId, rank }).then(({ stack }) => stack, messageOf);
  if (request === stackRequests) setText(byId("stack-text"), text);
}
