/**
 * The part of the form that makes an experiment of a job: parameters with several values each, and what is compared.
 *
 * @import { Body } from "../shared/code-snippets.js"
 */
import { byId, setText } from "../shared/dom.js";
import { counted } from "../shared/format.js";

const AGGREGATIONS = ["last", "min", "max", "mean"];

export const control = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ (byId(id));
export const text = (/** @type {string} */ id) => control(id).value.trim();
/** What is no number is sent unchanged: the server explains best what is wrong with it. @param {string} value */
export const number = (value) => (/^-?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(value) ? Number(value) : value);

/** The fields of an experiment that are filled in. @returns {Body} */
export function matrixBody() {
  /** @type {Body} */
  const body = {};
  const matrix = parseMatrix(text("matrix"));
  if (Object.keys(matrix).length) body.matrix = matrix;
  const measures = text("measure").split(",").map((each) => each.trim()).filter(Boolean);
  if (measures.length) body.measure = measures.map(parseMeasure);
  if (text("title")) body.title = text("title");
  if (text("repeats") && text("repeats") !== "1") body.repeats = number(text("repeats"));
  if (text("seed-option")) body.seed_option = text("seed-option");
  if (text("parallel")) body.parallel = number(text("parallel"));
  if (control("sequential").checked) body.sequential = true;
  const jobs = Object.values(matrix).reduce((product, values) => product * values.length, Number(body.repeats ?? 1));
  setText(byId("matrix-jobs"), body.matrix && Number.isFinite(jobs) ? `This makes ${counted(jobs, "job")}.` : "");
  return body;
}

/** Fill the fields with the definition of an experiment. @param {Body} definition */
export function fillMatrix({ title, matrix, measure, repeats, seed_option: seed, sequential, parallel }) {
  const values = {
    title,
    matrix: matrix?.length === 1 ? Object.entries(matrix[0]).map(([key, each]) => `${key} = ${each.map(asText).join(", ")}`).join("\n") : "",
    measure: (measure ?? []).map(measureText).join(", "),
    repeats,
    "seed-option": seed,
    parallel,
  };
  for (const [id, value] of Object.entries(values)) control(id).value = String(value ?? "");
  control("sequential").checked = Boolean(sequential);
}

/** What the fields cannot express of a definition; empty where they can. @param {Body} definition */
export function lostOf({ matrix, measure }) {
  const lost = [];
  if (matrix?.length > 1) lost.push("its list of several matrices");
  if (measure?.some((/** @type {Body} */ each) => each.relative_to || each.title || each.goal)) lost.push("titles, goals and relative values of its measures");
  return lost.join(" and ");
}

/** A line for each parameter: `--lr = 0.1, 0.01`, or `lr= = 0.1, 0.01`, whose key is `lr=`. @param {string} lines @returns {Record<string, unknown[]>} */
function parseMatrix(lines) {
  const parts = lines.split("\n").filter((line) => line.trim()).map((line) => {
    const [, key, values = ""] = /** @type {string[]} */ (/^([^=\s]+=(?=\s*=)|[^=]*)\s*(?:=(.*))?$/s.exec(line.trim()));
    return [key.trim(), values];
  });
  return Object.fromEntries(parts.map(([key, values]) => [key, splitValues(values).map(valueOf)]));
}

/** Commas separate values, but not within quotes. @param {string} values */
const splitValues = (values) => (values.match(/\s*(?:"(?:[^"\\]|\\.)*"|[^,]+)/g) ?? []).map((each) => each.trim()).filter(Boolean);

/** A quoted value is always a text. @param {string} value */
function valueOf(value) {
  if (/^"(?:[^"\\]|\\.)*"$/.test(value)) return unquoted(value);
  if (value === "true" || value === "false") return value === "true";
  return number(value);
}

/** What is no text of JSON stays as it is. @param {string} value */
function unquoted(value) {
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}

/** @param {unknown} value */
function asText(value) {
  if (typeof value !== "string") return String(value);
  return valueOf(value) === value && !value.includes(",") && value.trim() === value && value ? value : JSON.stringify(value);
}

/** "loss", or "min loss". @param {string} measure */
function parseMeasure(measure) {
  const [first, ...rest] = measure.split(/\s+/);
  return rest.length && AGGREGATIONS.includes(first) ? { metric: rest.join(" "), take: first } : measure;
}

/** @param {Body} measure */
const measureText = ({ metric, take }) => (take === "last" ? metric : `${take} ${metric}`);
