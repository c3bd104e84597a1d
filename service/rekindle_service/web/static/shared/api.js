/**
 * The REST API of the server, by method and path as the OpenAPI document lists them. Errors become a Problem; an expired
 * session leads to the sign-in page.
 *
 * @import { FieldError, Routes } from "./api-types.d.ts"
 */

/** An error answer of the server (RFC 9457 problem details). */
export class Problem extends Error {
  /** @param {number} status @param {{title?: string, detail?: string, errors?: FieldError[]}} body */
  constructor(status, body) {
    const fields = (body.errors ?? []).map((error) => `${error.field}: ${error.rule}`);
    super([body.detail ?? body.title ?? `the server answered with status ${status}`, ...fields].join(" – "));
    this.status = status;
    this.errors = body.errors ?? [];
  }
}

/** Whether the server has answered that there is no such thing. @param {unknown} error */
export const isNotFound = (error) => error instanceof Problem && error.status === 404;

/** @param {unknown} error @returns {string} */
export const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/** Logs why some data of the page is not up to date: `.catch(warn("the jobs"))`. @param {string} what */
export const warn = (what) => (/** @type {unknown} */ error) => console.warn(`${what} could not be read`, error);

/** Go to the sign-in page, and from there back to this one. */
export function signIn() {
  location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}${location.hash}`);
}

/**
 * The URL of a route. Values that its path does not name become the query; null, undefined and "" are omitted.
 *
 * @template {keyof Routes} Route
 * @param {Route} route @param {Routes[Route]["values"]} values
 */
export function urlOf(route, values) {
  let path = route.slice(route.indexOf(" ") + 1);
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (path.includes(`{${name}}`)) path = path.replace(`{${name}}`, encodeURIComponent(String(value)));
    else for (const one of [value].flat()) if (one !== null && one !== undefined && one !== "") query.append(name, String(one));
  }
  return `/api/v1${path}${query.size ? `?${query}` : ""}`;
}

/**
 * @template {keyof Routes} Route
 * @param {Route} route @param {Routes[Route]["values"]} values
 * @param {Routes[Route] extends {body: infer Body} ? Body : undefined} [body] sent as JSON, unless it is a Blob
 * @param {Record<string, string>} [headers]
 * @returns {Promise<Response>}
 */
export async function send(route, values, body, headers = {}) {
  const response = await fetch(urlOf(route, values), {
    method: route.slice(0, route.indexOf(" ")),
    cache: "no-store",
    headers: body === undefined ? headers : { "Content-Type": "application/json", ...headers },
    body: body instanceof Blob ? body : JSON.stringify(body),
  });
  if (response.ok) return response;
  if (response.status === 401) signIn();
  throw new Problem(response.status, await response.json().catch(() => ({})));
}

/**
 * Like `send`, with the JSON of the answer; null for an answer without content.
 *
 * @template {keyof Routes} Route
 * @param {Route} route @param {Routes[Route]["values"]} [values]
 * @param {Routes[Route] extends {body: infer Body} ? Body : undefined} [body]
 * @param {Record<string, string>} [headers]
 * @returns {Promise<Routes[Route]["answer"]>}
 */
export async function call(route, values = {}, body, headers) {
  const response = await send(route, values, body, headers);
  return response.status === 204 ? null : response.json();
}

/** The page of a job. @param {string} id */
export const jobUrl = (id) => `/jobs/${encodeURIComponent(id)}`;

/** The list of the jobs that a filter line finds. @param {string} line */
export const filterUrl = (line) => `/?q=${encodeURIComponent(line)}`;

/** The page of an experiment. @param {string} id */
export const experimentUrl = (id) => `/experiments/${encodeURIComponent(id)}`;

/** The comparison has no room for more jobs. */
export const MAX_COMPARED = 50;

/** The page that compares jobs. @param {string[]} ids */
export const compareUrl = (ids) => (ids.length ? `/compare?jobs=${ids.slice(0, MAX_COMPARED).map(encodeURIComponent).join(",")}` : "/compare");
