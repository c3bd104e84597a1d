/** Colours of curves, and CSS colours as a canvas needs them: computed, in the page's theme. */

/** So many colours were chosen by hand; they are in charts.css. */
export const CHOSEN = 8;
/** Lightness of neighbouring hues, per cent: in the light theme and in the dark one. */
const LIGHTNESS = [[56, 72], [44, 84], [65, 62]];

/**
 * The colour of curve `index` among `count`: no two are the same, and each is distinct from the ground in both themes.
 *
 * @param {number} index from 0 @param {number} count @returns {string} a CSS colour
 */
export function colourOf(index, count) {
  if (count <= CHOSEN) return `var(--curve-${index % CHOSEN})`;
  const hue = Math.round((360 * index) / count);
  const [light, dark] = LIGHTNESS[index % LIGHTNESS.length];
  return `light-dark(oklch(${light}% 0.15 ${hue}), oklch(${dark}% 0.13 ${hue}))`;
}

/** Computes CSS colours within an element, each once until the theme changes. */
export class ColourResolver {
  #probe;
  /** @type {Map<string, string>} */
  #known = new Map();

  /** @param {HTMLElement} probe hidden, within the element */
  constructor(probe) {
    this.#probe = probe;
  }

  /** @param {string} colour a CSS colour, or the name of a CSS variable @returns {string} */
  resolve(colour) {
    const known = this.#known.get(colour);
    if (known) return known;
    this.#probe.style.color = colour.startsWith("--") ? `var(${colour})` : colour;
    const computed = getComputedStyle(this.#probe).color;
    this.#known.set(colour, computed);
    return computed;
  }

  /** The theme has changed. */
  forget() {
    this.#known.clear();
  }
}
