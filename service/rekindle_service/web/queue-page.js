/** The list of jobs: totals, slots, filters kept in the address, live rows. */
import { listDevices, listExperiments, listJobs } from "./api.js";
import { byId, h, setText } from "./dom.js";
import { DeviceStrip } from "./device-strip.js";
import { JobTable } from "./job-table.js";
import { Stream } from "./stream.js";

const PAGE = 50;
const NEWEST_EXPERIMENTS = 5;
/** Many events in a row (a hundred submitted jobs) lead to one fetch. */
const SETTLE_MS = 250;

const table = new JobTable(byId("jobs"));
const strip = new DeviceStrip(byId("slots"));
const state = /** @type {HTMLSelectElement} */ (byId("filter-state"));
const name = /** @type {HTMLInputElement} */ (byId("filter-name"));

/** @type {(string | null)[]} cursors of the pages on the way to this one; the first page has none */
let trail = [null];
/** @type {string | null} */
let next = null;
/** @type {Map<string, string>} last known state of each job heard of */
const states = new Map();
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

function readAddress() {
  const query = new URLSearchParams(location.search);
  state.value = query.get("state") ?? "";
  name.value = query.get("name") ?? "";
  const cursor = query.get("cursor");
  trail = cursor ? [null, cursor] : [null];
}

/** @param {"pushState" | "replaceState"} how */
function writeAddress(how) {
  const query = new URLSearchParams();
  const entries = { state: state.value, name: name.value, cursor: trail.at(-1) ?? "" };
  for (const [key, value] of Object.entries(entries)) if (value) query.set(key, value);
  history[how](null, "", query.size ? `/?${query}` : "/");
}

async function showPage() {
  const answer = await listJobs({ state: state.value, name: name.value, limit: PAGE, cursor: trail.at(-1) });
  next = answer.next;
  answer.items.forEach((job) => states.set(job.id, job.state));
  table.show(answer.items);
  const filtered = state.value !== "" || name.value !== "" || trail.length > 1;
  byId("job-table").hidden = answer.items.length === 0;
  byId("nothing-yet").hidden = answer.items.length > 0 || filtered;
  byId("nothing-found").hidden = answer.items.length > 0 || !filtered;
  byId("pager").hidden = trail.length === 1 && !next;
  /** @type {HTMLButtonElement} */ (byId("newer")).disabled = trail.length === 1;
  /** @type {HTMLButtonElement} */ (byId("older")).disabled = !next;
  byId("queue").setAttribute("aria-busy", "false");
}

async function showTotals() {
  const atWork = ["starting", "running", "recovering"].map((word) => listJobs({ state: word, limit: 200 }));
  const [slots, waiting, ...active] = await Promise.all([listDevices(), listJobs({ state: "queued", limit: 200 }), ...atWork]);
  const holders = new Map(active.flatMap(({ items }) => items.map((job) => [job.id, job])));
  strip.show(slots, holders);
  setText(byId("total-running"), String(holders.size));
  setText(byId("total-waiting"), `${waiting.items.length}${waiting.next ? "+" : ""}`);
  setText(byId("total-slots"), `${slots.filter((slot) => slot.job).length} / ${slots.length}`);
}

async function showExperiments() {
  const newest = await listExperiments(NEWEST_EXPERIMENTS);
  byId("experiments").hidden = newest.length === 0;
  byId("experiment-links").replaceChildren(
    ...newest.map((one) => {
      const done = one.jobs - ["queued", "starting", "running", "recovering"].reduce((sum, word) => sum + (one.states[word] ?? 0), 0);
      const link = h("a", { href: `/experiments/${encodeURIComponent(one.id)}`, title: one.title }, h("bdi", {}, one.name));
      return h("li", {}, link, h("span", { class: "muted" }, one.over ? `${one.jobs} jobs` : `${done} of ${one.jobs}`));
    }),
  );
}

function refresh() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    Promise.all([showPage(), showTotals(), showExperiments()]).catch((error) => console.warn("the list could not be read", error));
  }, SETTLE_MS);
}

/**
 * A job that is shown changes in place; a new one, or one whose state changed, may belong elsewhere: fetch.
 *
 * @param {string} event
 * @param {any} data
 */
function hear(event, data) {
  if (event === "deleted") return refresh();
  if (event !== "job") return;
  table.update(data);
  if (states.get(data.id) !== data.state) refresh();
  states.set(data.id, data.state);
}

/** @param {"pushState" | "replaceState"} how */
function filterChanged(how) {
  trail = [null];
  writeAddress(how);
  refresh();
}

function wire() {
  state.addEventListener("change", () => filterChanged("pushState"));
  name.addEventListener("input", () => filterChanged("replaceState"));
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("older").addEventListener("click", () => turn([...trail, next]));
  byId("newer").addEventListener("click", () => turn(trail.slice(0, -1)));
  addEventListener("popstate", () => {
    readAddress();
    refresh();
  });
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target instanceof HTMLInputElement) return;
    event.preventDefault();
    name.focus();
  });
}

/** @param {(string | null)[]} to */
function turn(to) {
  trail = to;
  writeAddress("pushState");
  refresh();
  scrollTo({ top: 0 });
}

readAddress();
wire();
new Stream({ job: null, log: null }, { live: refresh, event: hear });
