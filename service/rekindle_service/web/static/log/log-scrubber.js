/** Where in a long log the user is, and a slider that leads to any other position. */
import { byId, setText } from "../shared/dom.js";
import { bytes } from "../shared/format.js";

/** Steps of the slider: in a log of a gigabyte each is 100 kB, about what one page of it shows. */
const STEPS = 10_000;
/** In a smaller log scrolling is quicker. */
const MIN_BYTES = 256 * 1024;

export class LogScrubber {
  #row = byId("log-position");
  #slider = byId("log-slider", HTMLInputElement);
  #size = 0;
  #dragging = false;

  /** @param {(offset: number) => void} onSeek */
  constructor(onSeek) {
    this.#slider.max = String(STEPS);
    this.#slider.addEventListener("input", () => {
      this.#dragging = true;
      this.#showOffset(this.#chosen);
    });
    this.#slider.addEventListener("change", () => {
      this.#dragging = false;
      onSeek(this.#chosen);
    });
  }

  get #chosen() {
    return Math.floor((Number(this.#slider.value) / STEPS) * this.#size);
  }

  /** @param {number} offset @param {number} size bytes */
  show(offset, size) {
    this.#size = size;
    this.#row.hidden = size < MIN_BYTES;
    if (this.#dragging) return;
    this.#slider.value = String(size ? Math.round((offset / size) * STEPS) : 0);
    this.#showOffset(offset);
  }

  /** @param {number} offset */
  #showOffset(offset) {
    const text = `${bytes(offset)} of ${bytes(this.#size)}`;
    this.#slider.setAttribute("aria-valuetext", text);
    setText(byId("log-where"), text);
  }
}
