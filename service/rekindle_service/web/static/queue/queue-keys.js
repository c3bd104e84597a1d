/** The keys of the queue: each does what a control of the page does. */
import { byId } from "../shared/dom.js";
import { focusOn, registerKeys } from "../shared/keys.js";

/** Move the focus to the row before or after the focused one; to the first row where none has it. @param {1 | -1} step */
const move = (step) => () => {
  const links = /** @type {HTMLElement[]} */ ([...byId("jobs").querySelectorAll("a.job-name")]).filter((link) => link.checkVisibility());
  const at = links.findIndex((link) => link.closest("tr")?.contains(document.activeElement));
  const next = links[at < 0 ? 0 : at + step];
  next?.focus({ preventScroll: true });
  next?.closest("tr")?.scrollIntoView({ block: "nearest" });
};

function select() {
  document.activeElement?.closest("#jobs tr")?.querySelector("input")?.click();
}

/** Move the focus to the first action that is possible for the selected jobs. */
function toActions() {
  /** @type {HTMLElement | null} */ (byId("bulk").querySelector("button:enabled"))?.focus();
}

registerKeys("Queue", {
  "/": ["filter", focusOn("filter")],
  j: ["next job", move(1)],
  k: ["previous job", move(-1)],
  Enter: ["open the job", null],
  x: ["select the job, or unselect it", select],
  a: ["actions on the selected jobs", toActions],
  u: ["clear the selection", () => byId("clear-selection").click()],
  m: ["show more or fewer jobs", () => byId("show-more").click()],
});
