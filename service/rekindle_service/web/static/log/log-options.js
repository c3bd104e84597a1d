/** How the log is shown: line numbers, times, wrapped lines, the full height of the window. Choices are remembered. */
import { remember, remembered } from "../shared/browser-storage.js";
import { byId, setText } from "../shared/dom.js";
import { zoneAt } from "./log-permalink.js";

const KEY = "rekindle-log";
/** By button: the class of the log that it sets, and whether it sets it while pressed. */
const CLASSES = /** @type {const} */ ({
  "log-numbers": ["with-numbers", true],
  "log-times": ["with-times", true],
  "log-wrap": ["no-wrap", false],
});

const stored = () => /** @type {Record<string, boolean>} */ (remembered(KEY) ?? {});

/** Whether times are shown. */
export const showsTimes = () => byId("log-times").getAttribute("aria-pressed") === "true";

/** @param {() => void} onTimes times are to be shown from now on */
export function makeOptions(onTimes) {
  for (const id of /** @type {(keyof typeof CLASSES)[]} */ (Object.keys(CLASSES))) {
    apply(id, stored()[id] ?? true);
    byId(id).addEventListener("click", () => {
      const pressed = byId(id).getAttribute("aria-pressed") !== "true";
      apply(id, pressed);
      remember(KEY, { ...stored(), [id]: pressed });
      if (id === "log-times" && pressed) onTimes();
    });
  }
  byId("log-full").addEventListener("click", () => setFullHeight(!byId("log-card").classList.contains("full-height")));
  byId("log-card").addEventListener("keydown", (event) => {
    if (event.key === "Escape") setFullHeight(false);
  });
}

/** @param {keyof typeof CLASSES} id @param {boolean} pressed */
function apply(id, pressed) {
  const [name, whilePressed] = CLASSES[id];
  byId(id).setAttribute("aria-pressed", String(pressed));
  for (const log of [byId("log"), byId("log-merged")]) log.classList.toggle(name, pressed === whilePressed);
  if (id === "log-times") setText(byId("log-zone"), pressed ? zoneAt(Date.now() / 1000) : "");
}

/** @param {boolean} full */
function setFullHeight(full) {
  byId("log-card").classList.toggle("full-height", full);
  byId("log-full").setAttribute("aria-pressed", String(full));
  document.body.classList.toggle("covered", full);
}
