/**
 * Elements from code. Text only ever becomes a text node: nothing in the page parses markup at run time.
 *
 * @typedef {Node | string | null | undefined | false} Child
 */

/**
 * One element. Attributes that are null, undefined or false are left out; `on…` functions become listeners.
 *
 * @param {string} tag
 * @param {Record<string, unknown>} [attributes]
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child) node.append(child);
  return node;
}

/**
 * The element of this document with that id.
 *
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const node = document.getElementById(id);
  if (!node) throw new Error(`the page has no element with id "${id}"`);
  return node;
}

/**
 * Write `text` only where it differs, so that a selection or a screen reader is not disturbed by equal values.
 *
 * @param {Element} node
 * @param {string} text
 */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Draw the children of `parent` anew, without touching those that are as they were: who reads, selects or has the focus
 * there is not disturbed. The focus goes on to what bears the same `data-focus`.
 *
 * @param {Element} parent
 * @param {Element[]} nodes
 */
export function redraw(parent, nodes) {
  const before = [...parent.children];
  const focused = parent.contains(document.activeElement) ? document.activeElement?.getAttribute("data-focus") : null;
  nodes.forEach((node, index) => {
    if (!before[index]) parent.append(node);
    else if (!before[index].isEqualNode(node)) before[index].replaceWith(node);
  });
  before.slice(nodes.length).forEach((node) => node.remove());
  if (!focused || parent.contains(document.activeElement)) return;
  /** @type {HTMLElement | null} */ (parent.querySelector(`[data-focus="${CSS.escape(focused)}"]`))?.focus({ preventScroll: true });
}

/**
 * Make `parent` hold exactly `nodes` in this order, moving as few as possible: a focused row keeps its focus.
 *
 * @param {Element} parent
 * @param {Element[]} nodes
 */
export function arrange(parent, nodes) {
  nodes.forEach((node, index) => {
    if (parent.children[index] !== node) parent.insertBefore(node, parent.children[index] ?? null);
  });
  while (parent.children.length > nodes.length) parent.lastElementChild?.remove();
}
