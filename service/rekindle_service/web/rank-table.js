/** One row per rank of the newest attempt; choosing one shows its log. */
import { badge, setBadge } from "./badge.js";
import { everySecond } from "./clock.js";
import { arrange, h, setText } from "./dom.js";
import { NONE, brief, bytes, count, outOf, speed } from "./format.js";
import { heartbeatAge, isLate } from "./heartbeat.js";

/** @typedef {import("./api.js").Rank} Rank */

export class RankTable {
  #body;
  #onChoose;
  #onStack;
  /** @type {Map<number, RankRow>} */
  #rows = new Map();

  /**
   * @param {HTMLElement} body
   * @param {(rank: number) => void} onChoose
   * @param {(rank: number) => void} onStack
   */
  constructor(body, onChoose, onStack) {
    this.#body = body;
    this.#onChoose = onChoose;
    this.#onStack = onStack;
    everySecond(() => this.#rows.forEach((row) => row.tick()));
  }

  /** @param {Rank[]} ranks */
  show(ranks) {
    const rows = ranks.map((rank) => {
      const row = this.#rows.get(rank.rank) ?? new RankRow(rank.rank, this.#onChoose, this.#onStack);
      row.update(rank);
      return row;
    });
    this.#rows = new Map(ranks.map((rank, index) => [rank.rank, rows[index]]));
    arrange(this.#body, rows.map((row) => row.node));
    this.#offer(".use", ranks.some(({ usage }) => usage));
    this.#offer(".device", ranks.some(({ device }) => device !== "cpu"));
  }

  /**
   * Columns that tell nothing leave their room to the last lines.
   *
   * @param {string} cells
   * @param {boolean} told
   */
  #offer(cells, told) {
    for (const cell of this.#body.closest("table")?.querySelectorAll(cells) ?? []) /** @type {HTMLElement} */ (cell).hidden = !told;
  }

  /** @param {number | null} chosen the rank whose log is shown */
  mark(chosen) {
    this.#rows.forEach((row, rank) => row.mark(rank === chosen));
  }
}

class RankRow {
  #badge = badge("starting");
  #ending = h("span", { class: "place" });
  #pid = h("td", { class: "number minor" });
  #device = h("td", { class: "minor device" });
  #processor = h("td", { class: "number minor use" });
  #memory = h("td", { class: "number minor use" });
  #epoch = h("td", { class: "number minor" });
  #step = h("td", { class: "number" });
  #speed = h("td", { class: "number minor" });
  #heartbeat = h("td", { class: "number" });
  #lastLine = h("td", { class: "last-line" });
  #button;
  #stack;
  /** @type {Rank | null} */
  #rank = null;
  #heardAt = 0;
  node;

  /**
   * @param {number} number
   * @param {(rank: number) => void} onChoose
   * @param {(rank: number) => void} onStack
   */
  constructor(number, onChoose, onStack) {
    const ask = (/** @type {Event} */ event) => {
      event.stopPropagation();
      onStack(number);
    };
    this.#stack = h("button", { type: "button", class: "link", "aria-label": `Show the stack of rank ${number}`, onclick: ask }, "Stack");
    this.#button = h("button", { type: "button", class: "quiet", "aria-label": `Show the log of rank ${number}` }, String(number));
    this.node = h(
      "tr",
      { class: "choosable", onclick: () => onChoose(number) },
      h("th", { scope: "row" }, this.#button),
      h("td", {}, this.#badge, this.#ending, this.#stack),
      this.#step,
      this.#epoch,
      this.#speed,
      this.#heartbeat,
      this.#device,
      this.#processor,
      this.#memory,
      this.#pid,
      this.#lastLine,
    );
  }

  /** @param {Rank} rank */
  update(rank) {
    this.#rank = rank;
    this.#heardAt = performance.now();
    setBadge(this.#badge, rank.state);
    setText(this.#ending, endingText(rank));
    setText(this.#pid, rank.pid === null ? NONE : String(rank.pid));
    setText(this.#device, rank.device ?? NONE);
    setText(this.#epoch, count(rank.epoch));
    setText(this.#step, outOf(rank.step, rank.steps));
    setText(this.#speed, rank.state === "running" ? speed(rank.steps_per_second) : NONE);
    this.#stack.hidden = rank.state !== "running";
    const device = rank.usage?.devices.at(0);
    setText(this.#processor, rank.usage ? useText(rank.usage.cpu_percent, device?.utilization_percent) : NONE);
    setText(this.#memory, rank.usage ? [bytes(rank.usage.rss_bytes), ...(device ? [bytes(device.memory_used_bytes)] : [])].join(" + ") : NONE);
    setText(this.#lastLine, rank.notice ?? rank.last_line ?? "");
    this.#lastLine.title = this.#lastLine.textContent ?? "";
    this.tick();
  }

  /** @param {boolean} chosen */
  mark(chosen) {
    this.node.dataset.chosen = String(chosen);
    this.#button.setAttribute("aria-pressed", String(chosen));
  }

  /** The heartbeat goes on ageing between two messages. */
  tick() {
    const rank = this.#rank;
    if (!rank) return;
    const age = heartbeatAge(rank, (performance.now() - this.#heardAt) / 1000);
    setText(this.#heartbeat, brief(age));
    this.#heartbeat.classList.toggle("late", isLate(age));
  }
}

/**
 * @param {number | null} processor percent of one core
 * @param {number | null | undefined} device percent of the time
 */
function useText(processor, device) {
  const cpu = processor === null ? NONE : `${Math.round(processor)} %`;
  return device === null || device === undefined ? cpu : `${cpu}, GPU ${Math.round(device)} %`;
}

/** @param {Rank} rank */
function endingText(rank) {
  if (rank.signal) return rank.signal;
  if (rank.exit_code) return `exit ${rank.exit_code}`;
  if (rank.straggler !== null) return `straggler: the others wait ${Math.round(100 * rank.straggler)} % of the time`;
  return rank.state === "running" && rank.phase ? rank.phase : "";
}
