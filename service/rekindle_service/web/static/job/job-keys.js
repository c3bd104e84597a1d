/** The keys of a job's page: each does what a control of the page does. */
import { byId } from "../shared/dom.js";
import { registerKeys } from "../shared/keys.js";

/** Click a control, unless the job does not offer it now. @param {string} id */
const click = (id) => () => {
  const control = document.getElementById(id);
  if (control && control.checkVisibility()) control.click();
};

/** @param {string} id */
const focus = (id) => () => {
  byId(id).scrollIntoView({ block: "nearest" });
  byId(id).focus();
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
  focus(tab)();
};

registerKeys("This job", {
  w: ["what happened", focus("story-title")],
  e: ["open the error in the log", click("story-log")],
  y: ["copy what happened", click("story-copy")],
  r: ["retry or resume", click("resume")],
  D: ["drain", click("drain")],
  X: ["cancel", click("cancel")],
  1: ["attempts", open("tab-attempts")],
  2: ["snapshots", open("tab-snapshots")],
  3: ["configuration", open("tab-configuration")],
});
registerKeys("Log", {
  l: ["go to the log", focus("log")],
  "/": ["search the log", focus("log-query")],
  "[": ["previous rank", choose("log-rank", -1)],
  "]": ["next rank", choose("log-rank", 1)],
  o: ["other stream", () => choose("log-stream", byId("log-stream", HTMLSelectElement).selectedIndex ? -1 : 1)()],
  f: ["follow the end", click("log-follow")],
});
