/**
 * Select Graphic Rendition: the colours of terminal output as class names from a fixed set, with sixteen colours each for
 * text and background, and five attributes. Whatever a log contains, the result is one of these.
 */

/** Red, green and blue of the sixteen colours, to which the 256 and the 16 million are rounded. */
const SIXTEEN = [
  [0, 0, 0], [205, 0, 0], [0, 205, 0], [205, 205, 0], [0, 0, 238], [205, 0, 205], [0, 205, 205], [229, 229, 229],
  [127, 127, 127], [255, 0, 0], [0, 255, 0], [255, 255, 0], [92, 92, 255], [255, 0, 255], [0, 255, 255], [255, 255, 255],
];

/** @param {number[]} colour */
function nearest(colour) {
  const distances = SIXTEEN.map((entry) => entry.reduce((sum, part, index) => sum + (part - colour[index]) ** 2, 0));
  return distances.indexOf(Math.min(...distances));
}

/** @param {number} index of the 256 colours: sixteen, a cube of six levels, 24 greys */
function ofPalette(index) {
  if (index < 16) return index;
  if (index >= 232) return nearest([1, 1, 1].map((one) => one * (8 + (index - 232) * 10)));
  const levels = [Math.floor((index - 16) / 36), Math.floor((index - 16) / 6) % 6, (index - 16) % 6];
  return nearest(levels.map((level) => (level ? 55 + level * 40 : 0)));
}

const ATTRIBUTES = new Map([[1, "bold"], [2, "dim"], [3, "italic"], [4, "underline"], [7, "inverse"]]);
const RESETS = new Map([[22, ["bold", "dim"]], [23, ["italic"]], [24, ["underline"]], [27, ["inverse"]]]);

/** The style of the next characters. */
export class SgrState {
  /** Class names, separated by spaces. */
  style = "";
  /** @type {Set<string>} */
  #attributes = new Set();
  /** @type {{fg: number | null, bg: number | null}} */
  #colours = { fg: null, bg: null };

  /** @param {string} parameters of a "select graphic rendition" sequence, such as "1;31" */
  select(parameters) {
    const codes = parameters.split(/[;:]/).map((part) => Number.parseInt(part, 10) || 0);
    while (codes.length) this.#apply(codes.shift() ?? 0, codes);
    const { fg, bg } = this.#colours;
    this.style = [...this.#attributes, fg === null ? "" : `fg-${fg}`, bg === null ? "" : `bg-${bg}`].filter(Boolean).join(" ");
  }

  /** @param {number} code @param {number[]} following */
  #apply(code, following) {
    const attribute = ATTRIBUTES.get(code);
    if (attribute) this.#attributes.add(attribute);
    RESETS.get(code)?.forEach((each) => this.#attributes.delete(each));
    if (code === 0) {
      this.#attributes.clear();
      this.#colours = { fg: null, bg: null };
    }
    this.#colour("fg", code, 30, following);
    this.#colour("bg", code, 40, following);
  }

  /** @param {"fg" | "bg"} layer @param {number} code @param {number} base 30 or 40 @param {number[]} following */
  #colour(layer, code, base, following) {
    if (code >= base && code < base + 8) this.#colours[layer] = code - base;
    else if (code >= base + 60 && code < base + 68) this.#colours[layer] = code - base - 52;
    else if (code === base + 9) this.#colours[layer] = null;
    else if (code === base + 8) this.#colours[layer] = extended(following);
  }
}

/** @param {number[]} following its leading `5;n` or `2;r;g;b` is removed @returns {number | null} */
function extended(following) {
  const kind = following.shift();
  if (kind === 5) return ofPalette(Math.min(255, following.shift() ?? 0));
  return kind === 2 ? nearest([0, 0, 0].map(() => Math.min(255, following.shift() ?? 0))) : null;
}
