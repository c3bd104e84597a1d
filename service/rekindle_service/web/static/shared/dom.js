/**
 * Elements from code. Text only ever becomes a text node: nothing in the page parses markup at run time.
 *
 * @typedef {Node | string | null | undefined | false} Child
 */

/**
 * One element. Attributes that are null, undefined or false are omitted; `on…` functions become listeners.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag @param {Record<string, unknown>} [attributes] @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
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
 * The element of this document with that id. Throws where there is none of that kind.
 *
 * @template {HTMLElement} [Kind=HTMLElement]
 * @param {string} id @param {new () => Kind} [kind]
 * @returns {Kind}
 */
export function byId(id, kind = /** @type {any} */ (HTMLElement)) {
  const node = document.getElementById(id);
  if (!(node instanceof kind)) throw new Error(`the page has no ${kind.name} with id "${id}"`);
  return node;
}

/**
 * Write `text` only where it differs, so that a selection or a screen reader is not disturbed by equal values.
 *
 * @param {Element} node @param {string} text
 */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Replace the children of `parent` that differ from `nodes` and keep the others: reading, selection and focus there are
 * not disturbed. The focus of a replaced element moves to the new one with the same `data-focus`.
 *
 * @param {Element} parent @param {Element[]} nodes
 */
export function patchChildren(parent, nodes) {
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

/** Give `select` these options, and choose one if it is among them. @param {HTMLSelectElement} select @param {string[][]} options value and text @param {string} [chosen] */
export function setOptions(select, options, chosen = select.value) {
  patchChildren(select, options.map(([value, text]) => new Option(text, value)));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

/**
 * Make `parent` hold exactly `nodes` in this order, moving as few as possible: a focused row keeps its focus.
 *
 * @param {Element} parent @param {Element[]} nodes
 */
export function reorderChildren(parent, nodes) {
  nodes.forEach((node, index) => {
    if (parent.children[index] !== node) parent.insertBefore(node, parent.children[index] ?? null);
  });
  while (parent.children.length > nodes.length) parent.lastElementChild?.remove();
}

/**
 * One child for each item, found by its key: updated in place as long as the item stays.
 *
 * @template Item
 * @template {{node: HTMLElement, update: (item: Item) => void}} View
 */
export class KeyedChildren {
  #parent;
  #keyOf;
  #create;
  /** @type {Map<unknown, View>} in the order shown */
  views = new Map();

  /** @param {Element} parent @param {(item: Item) => unknown} keyOf @param {(item: Item) => View} create */
  constructor(parent, keyOf, create) {
    this.#parent = parent;
    this.#keyOf = keyOf;
    this.#create = create;
  }

  /** @param {Item[]} items in the order to show */
  show(items) {
    this.views = new Map(
      items.map((item) => {
        const key = this.#keyOf(item);
        const view = this.views.get(key) ?? this.#create(item);
        view.update(item);
        return [key, view];
      }),
    );
    reorderChildren(this.#parent, [...this.views.values()].map(({ node }) => node));
  }
}

const COPIED_MS = 4000;

/**
 * Copy text to the clipboard, which browsers reject over plain http from another machine.
 *
 * @param {string} text @param {HTMLElement} [report] where the result is shown for a while; by default the element `copied`
 */
export async function copyText(text, report = byId("copied")) {
  const result = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  setText(report, result ? "Copied" : "The browser does not allow copying here: it requires https or localhost");
  setTimeout(() => setText(report, ""), COPIED_MS);
}
