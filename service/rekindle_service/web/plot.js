/** What all charts share: Plotly, loaded when there is something to draw, and how it looks here. */
import { h } from "./dom.js";

export const CONFIG = { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: "reset" };

/** @typedef {{line: string, redone: string, text: string, grid: string, ground: string}} Colours */

/** @type {Promise<any> | undefined} */
let library;

/** @returns {Promise<any>} */
export function plotly() {
  library ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "/static/vendor/plotly.min.js";
    script.addEventListener("load", () => resolve(/** @type {any} */ (globalThis).Plotly));
    script.addEventListener("error", () => reject(new Error("/static/vendor/plotly.min.js could not be loaded")));
    document.head.append(script);
  });
  return library;
}

/**
 * The theme's colours as Plotly wants them: computed, not as variables.
 *
 * @param {HTMLElement} node
 * @returns {Colours}
 */
export function themeColours(node) {
  const probe = h("span", { hidden: true });
  node.append(probe);
  const value = (/** @type {string} */ name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const colours = { line: value("accent"), redone: value("faint"), text: value("muted"), grid: value("grid"), ground: value("surface") };
  probe.remove();
  return colours;
}

/**
 * Values over steps.
 *
 * @param {Colours} colours
 */
export function baseLayout(colours) {
  const axis = { gridcolor: colours.grid, linecolor: colours.grid, zeroline: false, fixedrange: false, automargin: true };
  return {
    height: 210,
    margin: { l: 44, r: 10, t: 14, b: 34 },
    font: { family: "system-ui, sans-serif", size: 11, color: colours.text },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    showlegend: false,
    hovermode: "closest",
    hoverlabel: { bgcolor: colours.ground, bordercolor: colours.line, font: { color: colours.text } },
    uirevision: "kept",
    xaxis: { ...axis, title: { text: "step", standoff: 6 }, rangemode: "nonnegative" },
    yaxis: axis,
  };
}
