/** The keys of a job's page: each does what a control of the page does. */
import { byId } from "../shared/dom.js";
import { focusOn, registerKeys } from "../shared/keys.js";

/** Click a control, unless the job does not offer it now. @param {string} id */
const click = (id) => () => {
  const control = document.getElementById(id);
  if (control && control.checkVisibility()) control.click();
};

/** Choose the option before or after the one that is chosen. @param {string} id of a select @param {1 | -1} step */
const choose = (id, step) => () => {
  const select = byId(id, HTMLSelectElement);
  const next = select.selectedIndex + step;
  if (next < 0 || next >= select.options.length) return;
  select.selectedIndex = next;
  select.dispatchEvent(new Event("change", { bubbles: true }));
};

/** @param {string} tab */
const open = (tab) => () => {
  byId(tab).click();
  focusOn(tab)();
};

registerKeys("This job", {
  w: ["what happened", focusOn("story-title")],
  e: ["open the error in the log", click("story-log")],
  y: ["copy what happened", click("story-copy")],
  r: ["retry or resume", click("resume")],
  D: ["drain", click("drain")],
  X: ["cancel", click("cancel")],
  1: ["attempts", open("tab-attempts")],
  2: ["snapshots", open("tab-snapshots")],
  3: ["configuration", open("tab-configuration")],
});
registerKeys("Time axis and charts", {
  t: ["go to the time axis", focusOn("axis-slider")],
  "← →": ["earlier, later; with Shift ten times as far", null],
  "Home End": ["beginning, end", null],
  "+ -": ["zoom in, out", null],
  Enter: ["in a chart: show the log at the cursor", null],
  Escape: ["show everything", null],
});
registerKeys("Log", {
  l: ["go to the log", () => focusOn(byId("log").hidden ? "log-merged" : "log")()],
  "/": ["search the log", focusOn("log-query")],
  n: ["next match", click("log-next")],
  N: ["previous match", click("log-previous")],
  "[": ["previous rank", choose("log-rank", -1)],
  "]": ["next rank", choose("log-rank", 1)],
  o: ["other stream", () => choose("log-stream", byId("log-stream", HTMLSelectElement).selectedIndex ? -1 : 1)()],
  f: ["follow the output, or go to its end", click("log-follow")],
  F: ["full height, and back", click("log-full")],
});
