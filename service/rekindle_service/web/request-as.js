/**
 * A submit request in the words of other tools: the command line, and curl. Pure.
 *
 * @typedef {Record<string, any>} Body of `POST /api/v1/jobs`
 */
import { join, quote } from "./shell-words.js";

const LINE = 88; // characters, about
const BREAK = " \\\n  ";

/**
 * The command that submits the same; `lacking` names what the command line has no option for.
 *
 * @param {Body} body
 * @returns {{command: string, lacking: string[]}}
 */
export function asCommand(body) {
  const { args = [], script, module, recipe, code = {} } = body;
  const target = script !== undefined ? [script] : module !== undefined ? ["--module", module] : ["--recipe", recipe ?? ""];
  const guard = script === undefined && args.some((/** @type {string} */ arg) => arg.startsWith("-")) ? ["--"] : [];
  const words = [...optionsOf(body), target, ...(guard.length || args.length ? [[...guard, ...args]] : [])];
  const lacking = code.bundle !== undefined ? ["a bundle: name the folder that you packed with --code"] : [];
  return { command: wrap(["rekindle submit", ...words.map(join)]), lacking };
}

/**
 * @param {Body} body
 * @returns {string[][]} each option with its value
 */
function optionsOf({ code = {}, env = {}, after = [], snapshot = {}, ...body }) {
  const { ranks, warm } = body;
  /** @type {[string, unknown][]} */
  const valued = [
    ["--name", body.name],
    ["--code", code.path],
    ["--git", code.git],
    ["--ref", code.ref],
    ["--ranks", typeof ranks === "object" ? `${ranks.min}:${ranks.max}` : ranks],
    ["--device", body.device],
    ["--python", body.python],
    ["--priority", body.priority],
    ["--max-failures", body.max_failures],
    ["--hang-timeout", body.hang_timeout],
    ["--time-limit", body.time_limit],
    ["--every-steps", snapshot.every_steps],
    ["--every-seconds", snapshot.every_seconds],
    ["--every-epochs", snapshot.every_epochs],
    ["--keep", snapshot.keep],
    ["--best", snapshot.best],
    ...Object.entries(env).map(([key, value]) => /** @type {[string, unknown]} */ (["--env", `${key}=${value}`])),
    ...after.map((/** @type {string} */ id) => /** @type {[string, unknown]} */ (["--after", id])),
  ];
  const given = valued.filter(([, value]) => value !== undefined).map(([option, value]) => [option, String(value)]);
  return [...given, ...(snapshot.auto ? [["--every-auto"]] : []), ...(warm === false ? [["--cold"]] : [])];
}

/**
 * @param {Body} body
 * @param {string} origin of the server, as in "http://127.0.0.1:8700"
 */
export function asCurl(body, origin) {
  const token = '-H "Authorization: Bearer $(rekindle token)"';
  const data = quote(JSON.stringify(body, null, 2));
  return [`curl ${quote(`${origin}/api/v1/jobs`)}`, token, "-H 'Content-Type: application/json'", `-d ${data}`].join(BREAK);
}

/** @param {string[]} parts never broken within themselves */
function wrap(parts) {
  let line = 0;
  return parts.reduce((text, part) => {
    const fits = line + part.length < LINE;
    line = fits ? line + part.length + 1 : part.length + 2;
    return text === "" ? part : text + (fits ? " " : BREAK) + part;
  }, "");
}
