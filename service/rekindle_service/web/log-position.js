/** Where in a long log the reader is, and a slider that leads to any other place of it. */
import { byId, setText } from "./dom.js";
import { bytes } from "./format.js";

/** Steps of the slider: of a log of a gigabyte each is 100 kB, about what one page of it shows. */
const STEPS = 10_000;
/** Below this scrolling is quicker. */
const WORTH_IT = 256 * 1024;

export class LogPosition {
  #row = byId("log-position");
  #slider = /** @type {HTMLInputElement} */ (byId("log-slider"));
  #size = 0;
  #held = false;

  /** @param {(offset: number) => void} onChoose told the byte to show */
  constructor(onChoose) {
    this.#slider.max = String(STEPS);
    this.#slider.addEventListener("input", () => {
      this.#held = true;
      this.#tell(this.#chosen);
    });
    this.#slider.addEventListener("change", () => {
      this.#held = false;
      onChoose(this.#chosen);
    });
  }

  get #chosen() {
    return Math.floor((Number(this.#slider.value) / STEPS) * this.#size);
  }

  /**
   * @param {number} offset
   * @param {number} size
   */
  show(offset, size) {
    this.#size = size;
    this.#row.hidden = size < WORTH_IT;
    if (this.#held) return;
    this.#slider.value = String(size ? Math.round((offset / size) * STEPS) : 0);
    this.#tell(offset);
  }

  /** @param {number} offset */
  #tell(offset) {
    const text = `${bytes(offset)} of ${bytes(this.#size)}`;
    this.#slider.setAttribute("aria-valuetext", text);
    setText(byId("log-where"), text);
  }
}
