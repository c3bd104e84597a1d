/** Plotly, loaded when there is something to draw, and how its charts look in the page's theme. */
import { h } from "../shared/dom.js";

export const CONFIG = { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: "reset" };
const SCRIPT = "/static/vendor/plotly.min.js";

/** @typedef {{line: string, replayed: string, text: string, grid: string, background: string}} Colours */

/** @type {Promise<any> | undefined} */
let library;

/** @returns {Promise<any>} */
export function plotly() {
  library ??= new Promise((resolve, reject) => {
    const script = h("script", { src: SCRIPT });
    script.addEventListener("load", () => resolve(/** @type {any} */ (globalThis).Plotly));
    script.addEventListener("error", () => reject(new Error(`${SCRIPT} could not be loaded`)));
    document.head.append(script);
  });
  return library;
}

/**
 * The theme's colours as Plotly needs them: computed, not as variables.
 *
 * @param {HTMLElement} node @returns {Colours}
 */
export function themeColours(node) {
  const probe = h("span", { hidden: true });
  node.append(probe);
  const value = (/** @type {string} */ name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const colours = { line: value("accent"), replayed: value("faint"), text: value("muted"), grid: value("grid"), background: value("surface") };
  probe.remove();
  return colours;
}

/** @param {Colours} colours @param {string} xTitle */
export function baseLayout(colours, xTitle) {
  const axis = { gridcolor: colours.grid, linecolor: colours.grid, zeroline: false, fixedrange: false, automargin: true };
  return {
    height: 210,
    margin: { l: 44, r: 10, t: 14, b: 34 },
    font: { family: "system-ui, sans-serif", size: 11, color: colours.text },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    showlegend: false,
    hovermode: "closest",
    hoverlabel: { bgcolor: colours.background, bordercolor: colours.line, font: { color: colours.text } },
    uirevision: "kept",
    xaxis: { ...axis, title: { text: xTitle, standoff: 6 }, rangemode: "nonnegative" },
    yaxis: axis,
  };
}
