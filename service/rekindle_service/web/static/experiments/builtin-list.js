/**
 * The built-in experiments, each with a button that starts it.
 *
 * @import { BuiltIn } from "../shared/api-types.d.ts"
 * @import { ConfirmDialog } from "../shared/confirm-dialog.js"
 */
import { call, experimentUrl } from "../shared/api.js";
import { field } from "../shared/confirm-dialog.js";
import { byId, h } from "../shared/dom.js";
import { counted } from "../shared/format.js";
import { split } from "../shared/shell-words.js";

/** @param {ConfirmDialog} dialog of the page */
export async function showBuiltIns(dialog) {
  const { items } = await call("GET /experiments/builtin");
  const names = [...new Set(items.map(({ name }) => name))];
  byId("builtin-list").replaceChildren(...names.map((name) => item(items.filter((each) => each.name === name), dialog)));
  byId("builtins").hidden = false;
}

/** @param {BuiltIn[]} sizes of one experiment @param {ConfirmDialog} dialog */
function item(sizes, dialog) {
  const [{ name, title }] = sizes;
  const start = h("button", { type: "button", "data-needs": "submit", "aria-label": `Start ${name}`, onclick: () => confirm(sizes, dialog) }, "Start");
  return h("li", {}, start, h("strong", {}, name), h("span", { class: "muted" }, title));
}

/** @param {BuiltIn[]} sizes @param {ConfirmDialog} dialog */
function confirm(sizes, dialog) {
  const [{ name, title }] = sizes;
  const size = h("select", {}, ...sizes.map((each) => new Option(`${each.size}: ${counted(each.jobs, "job")}`, each.size)));
  const args = h("input", { autocomplete: "off", spellcheck: "false", placeholder: "--epochs 20" });
  dialog.open({
    title: `Start ${name}?`,
    jobs: [],
    consequence: `${title}. The size full is for GPUs and needs CIFAR-10: --data-dir DIRECTORY. Arguments are added to those of every job.`,
    fields: [field("Size", "size", size), field("Arguments", "args", args)],
    yes: "Start",
    run: async (chosen) => {
      const body = { builtin: name, size: String(chosen.get("size")), args: split(String(chosen.get("args"))) };
      location.assign(experimentUrl((await call("POST /experiments", {}, body)).id));
    },
  });
}
