/**
 * Charts of a job's metrics.
 *
 * Names of metrics never reach Plotly, which reads markup in labels: they are headings of the page's own.
 */
import { h, setText } from "./dom.js";
import { CONFIG, baseLayout, plotly, themeColours } from "./plot.js";
import { Metrics } from "./series.js";
import { onThemeChange } from "./theme.js";

const SHOWN_AT_FIRST = 2;
/** Redrawing more often than this buys nothing that an eye can see. */
const REDRAW_MS = 400;

export class Charts {
  #section;
  #picker;
  #grid;
  #metrics = new Metrics();
  /** @type {Map<number, number>} */
  #resumedFrom = new Map();
  /** @type {Map<string, {figure: HTMLElement, plot: HTMLElement, latest: HTMLElement, box: HTMLInputElement}>} */
  #charts = new Map();
  #scheduled = false;

  /**
   * @param {HTMLElement} section hidden while there is no metric
   * @param {HTMLElement} picker where metrics are chosen
   * @param {HTMLElement} grid where charts go
   */
  constructor(section, picker, grid) {
    this.#section = section;
    this.#picker = picker;
    this.#grid = grid;
    onThemeChange(() => this.#schedule());
  }

  /** @param {import("./api.js").Attempt[]} attempts */
  setAttempts(attempts) {
    this.#resumedFrom = new Map(attempts.map((attempt) => [attempt.number, attempt.resumed_from_step ?? 0]));
    this.#schedule();
  }

  /** @param {import("./api.js").Series[]} items */
  load(items) {
    this.#metrics.load(items);
    this.#schedule();
  }

  /** @param {{attempt: number, points: any[]}} event */
  append({ attempt, points }) {
    this.#metrics.append(attempt, points);
    this.#schedule();
  }

  #schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setTimeout(() => {
      this.#scheduled = false;
      this.#draw().catch((error) => console.warn("the charts could not be drawn", error));
    }, REDRAW_MS);
  }

  async #draw() {
    const names = this.#metrics.names();
    if (!names.length) return;
    names.forEach((name) => this.#charts.has(name) || this.#add(name));
    this.#section.hidden = false;
    this.#picker.hidden = names.length <= SHOWN_AT_FIRST;
    const library = await plotly();
    const colours = themeColours(this.#section);
    for (const [name, { figure, plot, latest, box }] of this.#charts) {
      figure.hidden = !box.checked;
      const parts = this.#metrics.parts(name, this.#resumedFrom);
      setText(latest, latestText(parts));
      if (box.checked) await library.react(plot, traces(parts, colours), layout(parts, colours), CONFIG);
    }
  }

  /** @param {string} name */
  #add(name) {
    const box = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", checked: this.#charts.size < SHOWN_AT_FIRST }));
    box.addEventListener("change", () => this.#schedule());
    const plot = h("div", { class: "plot" });
    const latest = h("output", { class: "latest" });
    const figure = h("figure", { class: "chart" }, h("figcaption", {}, h("bdi", {}, name), latest), plot);
    this.#picker.append(h("label", {}, box, h("bdi", {}, name)));
    this.#grid.append(figure);
    this.#charts.set(name, { figure, plot, latest, box });
  }
}

/** @param {import("./series.js").Part[]} parts */
function latestText(parts) {
  const last = parts.at(-1)?.kept.at(-1);
  return last && last[3] !== null ? `${Number(last[3].toPrecision(5))} at step ${last[0]}` : "";
}

/**
 * Two traces per attempt: what counts, and faded what was done again.
 *
 * @param {import("./series.js").Part[]} parts
 * @param {ReturnType<typeof themeColours>} colours
 */
function traces(parts, colours) {
  const trace = (/** @type {import("./api.js").Point[]} */ points, /** @type {string} */ name, /** @type {object} */ line) => ({
    type: "scatter",
    mode: points.length === 1 ? "markers" : "lines",
    name,
    x: points.map(([step]) => step),
    y: points.map(([, , , value]) => value),
    line,
    marker: { color: colours.line, size: 5 },
    hovertemplate: `%{y:.5g} · step %{x} · ${name}<extra></extra>`,
  });
  const redone = parts
    .filter((part) => part.redone.length)
    .map((part) => {
      const points = [...part.kept.slice(-1), ...part.redone];
      return trace(points, `attempt ${part.attempt}, done again`, { color: colours.redone, width: 2, dash: "dot" });
    });
  return [...redone, ...parts.map((part) => trace(part.kept, `attempt ${part.attempt}`, { color: colours.line, width: 1.75 }))];
}

/**
 * @param {import("./series.js").Part[]} parts
 * @param {ReturnType<typeof themeColours>} colours
 */
function layout(parts, colours) {
  const starts = parts.slice(1).flatMap((part) => (part.kept.length ? [{ attempt: part.attempt, step: part.kept[0][0] }] : []));
  return {
    ...baseLayout(colours),
    shapes: starts.map(({ step }) => ({
      type: "line", yref: "paper", x0: step, x1: step, y0: 0, y1: 1, line: { color: colours.redone, width: 1, dash: "dash" },
    })),
    annotations: starts.map(({ attempt, step }) => ({
      x: step, y: 1, yref: "paper", yanchor: "bottom", showarrow: false, text: `attempt ${attempt}`, font: { size: 10 },
    })),
  };
}
