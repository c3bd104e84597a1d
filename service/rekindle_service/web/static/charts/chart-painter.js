/**
 * A line chart on a canvas: axes, marks and curves; and above them the cursor.
 *
 * Text is painted as pixels: nothing in it is interpreted, whatever a name has.
 *
 * @import { Content, Frame, Series } from "./chart-frame.js"
 * @typedef {(colour: string) => string} Resolve a CSS colour or variable as a canvas needs it
 */
import { nearest, pixelOf, runsOf } from "./chart-frame.js";

export const FONT = "11px system-ui, sans-serif";
const LINE_WIDTH = 1.75;
const DASH = [2, 3];
const FADED = 0.35;
const DOT = 2.5;

/** @param {CanvasRenderingContext2D} context @param {Content} content @param {Frame} frame @param {Resolve} resolve */
export function paintChart(context, content, frame, resolve) {
  context.font = FONT;
  paintAxes(context, content, frame, resolve);
  context.save();
  context.beginPath();
  context.rect(frame.x.from, frame.y.to - 1, frame.x.to - frame.x.from, frame.y.from - frame.y.to + 2);
  context.clip();
  paintMarkLines(context, content, frame, resolve);
  for (const series of content.series) paintCurve(context, series, frame, resolve);
  context.restore();
  paintMarkLabels(context, content, frame, resolve);
}

/** @param {CanvasRenderingContext2D} context @param {Content} content @param {Frame} frame @param {Resolve} resolve */
function paintAxes(context, { x: { title = "" } }, { width, height, x, y, xTicks, yTicks }, resolve) {
  context.strokeStyle = context.fillStyle = resolve("--grid");
  for (const { from, to } of x.idle ?? []) {
    const [left, right] = [from, to].map((at) => Math.max(x.from, Math.min(x.to, pixelOf(x, at))));
    context.fillRect(left, y.to, right - left, y.from - y.to);
  }
  context.fillStyle = resolve("--muted");
  context.lineWidth = 1;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const { at, label } of yTicks) {
    const top = Math.round(pixelOf(y, at)) + 0.5;
    line(context, x.from, top, x.to, top);
    context.fillText(label, x.from - 6, top);
  }
  const room = context.measureText(title).width + 8;
  const isLeft = room <= x.from; // below the labels of the other axis
  if (title) context.fillText(title, isLeft ? x.from - 8 : width - 4, height - 8);
  const end = title && !isLeft ? width - room - 8 : width;
  context.textAlign = "center";
  let free = 0;
  for (const { at, label } of xTicks) {
    const left = Math.round(pixelOf(x, at)) + 0.5;
    line(context, left, y.to, left, y.from);
    const half = context.measureText(label).width / 2;
    if (left - half < free || left + half > end) continue;
    context.fillText(label, left, height - 8);
    free = left + half + 4;
  }
}

/** @param {CanvasRenderingContext2D} context @param {Content} content @param {Frame} frame @param {Resolve} resolve */
function paintMarkLines(context, { marks = [] }, { x, y }, resolve) {
  context.setLineDash([4, 3]);
  context.lineWidth = 1;
  for (const { x: at, kind } of marks) {
    const left = Math.round(pixelOf(x, at)) + 0.5;
    context.strokeStyle = resolve(kind === "failure" ? "--bad" : "--faint");
    line(context, left, y.to, left, y.from);
  }
  context.setLineDash([]);
}

/** A label that would cover another one is not painted. @param {CanvasRenderingContext2D} context @param {Content} content @param {Frame} frame @param {Resolve} resolve */
function paintMarkLabels(context, { marks = [] }, { width, x, y }, resolve) {
  context.textAlign = "left";
  context.fillStyle = resolve("--muted");
  let free = 0;
  for (const { x: at, label } of [...marks].sort((one, other) => one.x - other.x)) {
    if (at < x.min || at > x.max) continue;
    const length = context.measureText(label).width;
    const left = Math.max(0, Math.min(pixelOf(x, at) - length / 2, width - length));
    if (left < free) continue;
    context.fillText(label, left, y.to - 8);
    free = left + length + 6;
  }
}

/** @param {CanvasRenderingContext2D} context @param {Series} series @param {Frame} frame @param {Resolve} resolve */
function paintCurve(context, series, frame, resolve) {
  context.strokeStyle = context.fillStyle = resolve(series.colour ?? "--accent");
  context.globalAlpha = series.faded ? FADED : 1;
  context.lineWidth = series.width ?? LINE_WIDTH;
  context.lineJoin = "round";
  context.setLineDash(series.dash ? DASH : []);
  for (const run of runsOf(series, frame)) {
    context.beginPath();
    run.forEach(([x, y], index) => (index ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.stroke();
    if (run.every(([x]) => x === run[0][0])) dot(context, run[run.length - 1]); // a line at one position cannot be seen
  }
  context.setLineDash([]);
  context.globalAlpha = 1;
}

/** @param {CanvasRenderingContext2D} context @param {Content} content @param {Frame} frame @param {number} at @param {Resolve} resolve */
export function paintCursor(context, { series }, frame, at, resolve) {
  const left = Math.round(pixelOf(frame.x, at)) + 0.5;
  if (left < frame.x.from || left > frame.x.to + 1) return;
  context.strokeStyle = resolve("--border-strong");
  context.lineWidth = 1;
  line(context, left, frame.y.to, left, frame.y.from);
  for (const each of series) {
    const index = nearest(each, at, frame);
    if (index === null) continue;
    context.fillStyle = resolve(each.colour ?? "--accent");
    dot(context, [pixelOf(frame.x, /** @type {number} */ (each.x[index])), pixelOf(frame.y, /** @type {number} */ (each.y[index]))]);
  }
}

/** @param {CanvasRenderingContext2D} context @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2 */
function line(context, x1, y1, x2, y2) {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}

/** @param {CanvasRenderingContext2D} context @param {[x: number, y: number]} centre */
function dot(context, [x, y]) {
  context.beginPath();
  context.arc(x, y, DOT, 0, 2 * Math.PI);
  context.fill();
}
