/**
 * The page of the disk: what takes its space, what could not be deleted, and pruning.
 *
 * @import { DiskUsage, JobUsage, PruneItem } from "../shared/api-types.d.ts"
 */
import { mayChange } from "../shared/account.js";
import { call, jobUrl, messageOf } from "../shared/api.js";
import { ConfirmDialog } from "../shared/confirm-dialog.js";
import { byId, h, setText } from "../shared/dom.js";
import { NONE, ago, bytes, count, counted } from "../shared/format.js";
import { DELETE } from "../shared/job-actions.js";
import { hasEnded, setFill } from "../shared/job-state.js";
import { keepFresh, markReady } from "../shared/live-page.js";

/** The server measures as often. */
const REFRESH_INTERVAL_MS = 15_000;
const PAGE_JOBS = 50;
const MAX_SHOWN_ITEMS = 200;

const dialog = new ConfirmDialog();
let shownJobs = PAGE_JOBS;

async function refresh() {
  const [disk, jobs] = await Promise.all([call("GET /disk"), call("GET /disk/jobs", { limit: shownJobs })]);
  showFigures(disk);
  showStuck(disk);
  byId("owners").replaceChildren(
    ...disk.owners.map(({ owner, jobs: number, bytes: size }) =>
      h("tr", {}, h("td", {}, h("bdi", {}, owner ?? "no person")), h("td", { class: "number" }, count(number)), h("td", { class: "number" }, bytes(size))),
    ),
  );
  byId("jobs").replaceChildren(...jobs.items.map(jobRow));
  byId("more").hidden = jobs.next === null;
  markReady();
}

/** @param {DiskUsage} disk */
function showFigures(disk) {
  const used = disk.total_bytes - disk.free_bytes;
  const fill = h("span");
  setFill(fill, used / disk.total_bytes);
  const bar = h("div", { class: "bar", "aria-hidden": "true" }, fill);
  const figure = (/** @type {string} */ name, /** @type {number} */ size, /** @type {Node | null} */ more = null) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, bytes(size)), more && h("dd", { class: "muted" }, more));
  byId("disk-figures").replaceChildren(
    figure("Free", disk.free_bytes, h("span", {}, `of ${bytes(disk.total_bytes)}`, bar)),
    figure("Snapshots", disk.jobs.snapshots),
    figure("Logs and metrics", disk.jobs.logs),
    figure("Code and files of scripts", disk.jobs.code),
    figure("Other files of jobs", disk.jobs.other),
    figure("Uploaded code", disk.bundles_bytes),
    figure("Database", disk.database_bytes),
  );
  const measuring = disk.unmeasured ? `${counted(disk.unmeasured, "job is", "jobs are")} not measured yet` : "";
  const deleting = disk.pending_deletions ? `${counted(disk.pending_deletions, "directory is", "directories are")} being deleted` : "";
  setText(byId("disk-sentence"), [measuring, deleting].filter(Boolean).join(" · "));
  byId("lack").hidden = disk.lack_of_space === null;
  setText(byId("lack"), `No job is accepted or started: ${disk.lack_of_space}`);
}

/** @param {DiskUsage} disk */
function showStuck({ stuck_deletions: stuck }) {
  byId("stuck").hidden = stuck.length === 0;
  byId("stuck-list").replaceChildren(...stuck.map(({ path, reason, since }) => h("li", {}, h("code", {}, path), ` – ${reason} (since ${ago(since)})`)));
}

/** @param {JobUsage} job */
function jobRow(job) {
  const size = (/** @type {number | undefined} */ value) => h("td", { class: "number" }, bytes(value));
  const remove = h("button", { type: "button", class: "quiet", "aria-label": `Delete job ${job.number}`, onclick: () => confirmDelete(job) }, "Delete …");
  return h(
    "tr",
    {},
    h("td", {}, h("a", { href: jobUrl(job.id) }, `#${job.number} `, h("bdi", {}, job.name))),
    h("td", {}, h("bdi", {}, job.owner ?? NONE)),
    h("td", {}, job.state),
    h("td", {}, job.ended_at ? ago(job.ended_at) : NONE),
    size(job.kinds?.snapshots),
    size(job.kinds?.logs),
    size(job.kinds ? job.kinds.code + job.kinds.other : undefined),
    size(job.bytes ?? undefined),
    h("td", {}, hasEnded(job) && mayChange(job.owner) ? remove : null),
  );
}

/** @param {JobUsage} job */
function confirmDelete(job) {
  dialog.open({
    title: "Delete this job and its files?",
    jobs: [job],
    consequence: DELETE.consequence,
    yes: "Delete",
    run: async () => {
      await call("DELETE /jobs/{job_id}", { job_id: job.id });
      await refresh();
    },
  });
}

/** The rules that the form has. */
function rules() {
  const fields = [...new FormData(byId("prune", HTMLFormElement))].filter(([, value]) => value !== "");
  return Object.fromEntries(fields.map(([name, value]) => [name, Number(value)]));
}

/** @param {Record<string, number>} body */
async function plan(body) {
  const planned = await call("POST /disk/prune", {}, { ...body, dry_run: true });
  const more = planned.count > MAX_SHOWN_ITEMS ? `; the first ${MAX_SHOWN_ITEMS} are shown` : "";
  setText(byId("plan-sentence"), planned.count ? `${counted(planned.count, "item")}, ${bytes(planned.bytes)}, would be removed${more}.` : "Nothing would be removed.");
  byId("plan-items").replaceChildren(...planned.items.slice(0, MAX_SHOWN_ITEMS).map(itemRow));
  byId("plan-table").hidden = planned.count === 0;
  byId("plan").hidden = false;
  const button = byId("prune-now", HTMLButtonElement);
  button.hidden = planned.count === 0;
  button.onclick = () => confirmPrune(body, `${counted(planned.count, "item")}, ${bytes(planned.bytes)}`);
}

/** @param {PruneItem} item */
function itemRow(item) {
  const job = item.job_id ? h("a", { href: jobUrl(item.job_id) }, `#${item.number}`) : NONE;
  const size = item.kind === "events" || item.kind === "audit" ? counted(item.count, "row") : bytes(item.bytes);
  return h("tr", {}, h("td", {}, item.kind), h("td", {}, job), h("td", {}, h("bdi", {}, item.name || NONE)), h("td", { class: "number" }, size), h("td", {}, item.reason));
}

/** @param {Record<string, number>} body @param {string} what */
function confirmPrune(body, what) {
  dialog.open({
    title: `Remove ${what}?`,
    jobs: [],
    consequence: "This cannot be undone. The list is made again when you confirm, since jobs may have ended or been resumed meanwhile.",
    yes: "Remove",
    run: async () => {
      const { count: number, bytes: size, failures } = await call("POST /disk/prune", {}, { ...body, dry_run: false });
      await plan(body);
      const failed = failures.length ? ` ${counted(failures.length, "item")} could not be removed: ${failures[0].reason}.` : "";
      setText(byId("plan-sentence"), `${counted(number, "item")}, ${bytes(size)}, removed.${failed}`);
      await refresh();
    },
  });
}

byId("prune").addEventListener("submit", (event) => {
  event.preventDefault();
  byId("plan").hidden = false;
  plan(rules()).catch((error) => setText(byId("plan-sentence"), messageOf(error)));
});
byId("retry").addEventListener("click", () => {
  setText(byId("retry-error"), "");
  call("POST /disk/retry-deletions").then(refresh).catch((error) => setText(byId("retry-error"), messageOf(error)));
});
byId("more").addEventListener("click", () => {
  shownJobs += PAGE_JOBS;
  refreshing.now();
});
const refreshing = keepFresh(refresh, REFRESH_INTERVAL_MS, (event) => event === "deleted");
setInterval(() => document.hidden || refreshing.now(), REFRESH_INTERVAL_MS);
