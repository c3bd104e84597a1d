/** Many ranks at a glance: a tile for each, coloured by its state, with a mark where it needs a look. */
import { arrange, h, setText } from "./dom.js";
import { brief, count, outOf } from "./format.js";
import { heartbeatAge, isLate } from "./heartbeat.js";

/** @typedef {import("./api.js").Rank} Rank */

/** Fewer are seen at a glance in the table. */
const WORTH_IT = 9;

export class RankGrid {
  #node;
  #onChoose;
  /** @type {Map<number, HTMLElement>} */
  #tiles = new Map();

  /**
   * @param {HTMLElement} node
   * @param {(rank: number) => void} onChoose
   */
  constructor(node, onChoose) {
    this.#node = node;
    this.#onChoose = onChoose;
  }

  /** @param {Rank[]} ranks */
  show(ranks) {
    this.#node.hidden = ranks.length < WORTH_IT;
    if (this.#node.hidden) return;
    const furthest = Math.max(...ranks.map(({ step }) => step ?? 0));
    const tiles = ranks.map((rank) => this.#update(rank, furthest));
    this.#tiles = new Map(ranks.map(({ rank }, index) => [rank, tiles[index]]));
    arrange(this.#node, tiles);
  }

  /** @param {number | null} chosen the rank whose log is shown */
  mark(chosen) {
    this.#tiles.forEach((tile, rank) => tile.setAttribute("aria-pressed", String(rank === chosen)));
  }

  /**
   * @param {Rank} rank
   * @param {number} furthest step
   */
  #update(rank, furthest) {
    const tile = this.#tiles.get(rank.rank) ?? h("button", { type: "button", class: "tile", onclick: () => this.#onChoose(rank.rank) });
    const [mark, why] = markOf(rank, furthest);
    tile.dataset.state = rank.state;
    tile.dataset.mark = mark;
    setText(tile, String(rank.rank));
    const told = [`Rank ${rank.rank}`, rank.state, `step ${outOf(rank.step, rank.steps)}`, why].filter(Boolean).join(", ");
    tile.title = told;
    tile.setAttribute("aria-label", told);
    return tile;
  }
}

/**
 * @param {Rank} rank
 * @param {number} furthest
 * @returns {[mark: "" | "late" | "straggler" | "behind", why: string]}
 */
function markOf(rank, furthest) {
  const age = heartbeatAge(rank, 0);
  if (isLate(age)) return ["late", `no sign of life for ${brief(age)}`];
  if (rank.straggler !== null) return ["straggler", "a straggler: the others wait for it"];
  const behind = furthest - (rank.step ?? furthest);
  return behind > 1 && rank.state === "running" ? ["behind", `${count(behind)} steps behind`] : ["", ""];
}
