/**
 * Keys of a page, and the overlay that lists them, which `?` opens. A key is a character as typed (`/`, `?`, `F`), the
 * name of a key (`Escape`), or two of them in a row (`g q`). Keys without an action are only listed: the element that has
 * the focus handles them.
 *
 * Keys do nothing while something is typed into a field, and within a dialog.
 *
 * @typedef {Record<string, [description: string, action: (() => void) | null]>} Keys
 */
import { byId, h } from "./dom.js";

/** Milliseconds in which the second key of a pair must follow the first. */
const PAIR_MS = 1500;

/** By the heading under which they are listed. @type {Map<string, Keys>} */
const groups = new Map();
const list = h("div", { class: "keys" });
const overlay = h(
  "dialog",
  { id: "keys", "aria-labelledby": "keys-title" },
  h("h2", { id: "keys-title" }, "Keys"),
  list,
  h("form", { method: "dialog", class: "actions" }, h("button", {}, "Close")),
);
let first = "";
let firstAt = 0;

/** Keys of a part of the page; those of an earlier call for the same `group` are replaced. @param {string} group @param {Keys} keys */
export function registerKeys(group, keys) {
  groups.set(group, keys);
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || isTaken(event.target)) return;
  const now = performance.now();
  const pair = now - firstAt < PAIR_MS ? `${first} ${event.key}` : "";
  const action = find(pair) ?? find(event.key);
  [first, firstAt] = action ? ["", 0] : [event.key, now];
  if (!action) return;
  event.preventDefault();
  action();
}

/** @param {string} key */
const find = (key) => [...groups.values()].find((keys) => Object.hasOwn(keys, key))?.[key][1];

/** Whether the key is somebody else's: text is typed, or a dialog is open. @param {EventTarget | null} target */
function isTaken(target) {
  const typed = target instanceof Element && target.closest("input:not([type=checkbox], [type=range]), select, textarea, [contenteditable]");
  return Boolean(typed) || document.querySelector("dialog[open]") !== null;
}

function show() {
  list.replaceChildren(
    ...[...groups].map(([group, keys]) =>
      h(
        "section",
        {},
        h("h3", {}, group),
        h("dl", {}, ...Object.entries(keys).flatMap(([key, [description]]) => [h("dt", {}, ...key.split(" ").map((each) => h("kbd", {}, each))), h("dd", {}, description)])),
      ),
    ),
  );
  if (!overlay.isConnected) document.body.append(overlay);
  overlay.showModal();
}

/** @param {string} url */
const goTo = (url) => () => location.assign(url);

/** An action that moves the focus to a control and shows it. @param {string} id of the control */
export const focusOn = (id) => () => {
  byId(id).scrollIntoView({ block: "nearest" });
  byId(id).focus();
};

registerKeys("Every page", {
  "?": ["show the keys", show],
  "g q": ["go to the queue", goTo("/")],
  "g e": ["go to the experiments", goTo("/experiments")],
  "g n": ["submit a new job", goTo("/submit")],
  "g m": ["go to the machine", goTo("/machine")],
  "g d": ["go to the disk", goTo("/disk")],
});
document.addEventListener("keydown", onKey);
document.getElementById("theme")?.before(h("button", { class: "quiet show-keys", type: "button", "aria-haspopup": "dialog", onclick: show }, "Keys"));
