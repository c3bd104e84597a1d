/** Elements of a drawing. Text only ever becomes a text node. */

const NAMESPACE = "http://www.w3.org/2000/svg";

/**
 * One element; attributes that are null or undefined are omitted.
 *
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag @param {Record<string, string | number | null | undefined>} [attributes] @param {...(Node | string)} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

/** A text cut to `length` characters, whole in its tooltip. @param {string} text @param {number} length @param {Record<string, string | number>} attributes */
export function label(text, length, attributes) {
  const cut = text.length > length ? `${text.slice(0, length - 1)}…` : text;
  return svg("text", attributes, cut, svg("title", {}, text));
}
