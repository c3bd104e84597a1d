/** A job's life on a time axis: waiting, starting, training, and training that had to be done again. */
import { everySecond } from "./clock.js";
import { arrange, h, setText } from "./dom.js";
import { duration } from "./format.js";
import { timeSpent } from "./time-spent.js";

/** @typedef {import("./time-spent.js").Piece} Piece */

const KINDS = /** @type {const} */ (["training", "lost", "starting", "waiting"]);
const NAMES = { training: "training", lost: "done again", starting: "starting", waiting: "waiting" };

export class Timeline {
  #bar;
  #legend;
  /** @type {Map<string, HTMLElement>} */
  #amounts = new Map();
  /** @type {import("./api.js").Job | null} */
  #job = null;
  /** @type {import("./api.js").Attempt[]} */
  #attempts = [];

  /**
   * @param {HTMLElement} bar
   * @param {HTMLElement} legend
   */
  constructor(bar, legend) {
    this.#bar = bar;
    this.#legend = legend;
    everySecond(() => this.#job?.ended_at === null && this.#draw());
  }

  /**
   * @param {import("./api.js").Job} job
   * @param {import("./api.js").Attempt[]} attempts in ascending order
   */
  show(job, attempts) {
    this.#job = job;
    this.#attempts = attempts;
    this.#draw();
  }

  #draw() {
    if (!this.#job) return;
    const pieces = timeSpent(this.#job, this.#attempts, Date.now());
    const nodes = pieces.map((piece, index) => draw(piece, /** @type {HTMLElement | undefined} */ (this.#bar.children[index])));
    arrange(this.#bar, nodes);
    this.#sumUp(pieces);
  }

  /** @param {Piece[]} pieces */
  #sumUp(pieces) {
    for (const kind of KINDS) {
      const seconds = pieces.filter((piece) => piece.kind === kind).reduce((sum, piece) => sum + piece.seconds, 0);
      const amount = this.#amounts.get(kind) ?? h("li", { "data-kind": kind });
      this.#amounts.set(kind, amount);
      setText(amount, `${NAMES[kind]} ${duration(seconds)}`);
      amount.hidden = seconds === 0;
    }
    arrange(this.#legend, [...this.#amounts.values()]);
  }
}

/**
 * @param {Piece} piece
 * @param {HTMLElement} [node] drawn anew where there is none yet
 */
function draw(piece, node = h("span")) {
  const whose = piece.attempt === null ? "" : `attempt ${piece.attempt}: `;
  node.dataset.kind = piece.kind;
  node.title = `${whose}${NAMES[piece.kind]} ${duration(piece.seconds)}`;
  node.style.flexGrow = String(piece.seconds);
  return node;
}
