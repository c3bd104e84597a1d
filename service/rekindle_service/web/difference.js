/** How this job differs from another: what was submitted, the packages and machine, and the code line by line. */
import { Problem, listJobs, readJob } from "./api.js";
import { entriesOf, factsOf } from "./configuration.js";
import { byId, h, setText } from "./dom.js";
import { compareCode, readConfiguration } from "./job-api.js";

/** @typedef {[label: string, ours: string, theirs: string]} Row */

/** Not worth telling: they differ between any two jobs. */
const ALWAYS = new Set(["Submitted", "Job", "Working folder"]);
const CHOICES = 100;
const PACKAGE = "Package ";

export class Difference {
  #jobId;
  #select = /** @type {HTMLSelectElement} */ (byId("difference-with"));
  #listed = false;
  #asked = 0;

  /** @param {string} jobId */
  constructor(jobId) {
    this.#jobId = jobId;
    this.#select.addEventListener("focus", () => void this.#list());
    this.#select.addEventListener("pointerdown", () => void this.#list());
    this.#select.addEventListener("change", () => void this.#compare(this.#select.value));
    const other = new URLSearchParams(location.search).get("diff");
    if (other) void this.#open(other);
  }

  /** @param {string} other */
  async #open(other) {
    await this.#list();
    this.#select.value = other;
    await this.#compare(other);
    byId("configuration-title").scrollIntoView();
  }

  async #list() {
    if (this.#listed) return;
    this.#listed = true;
    const { items } = await listJobs({ limit: CHOICES });
    const others = items.filter(({ id }) => id !== this.#jobId);
    this.#select.append(...others.map(({ id, number, name }) => h("option", { value: id }, `#${number} ${name}`)));
  }

  /** @param {string} other id of a job, or "" for none */
  async #compare(other) {
    const asked = ++this.#asked;
    const address = new URL(location.href);
    if (other) address.searchParams.set("diff", other);
    else address.searchParams.delete("diff");
    history.replaceState(null, "", address);
    byId("difference").hidden = true;
    setText(byId("difference-found"), other ? "Comparing …" : "");
    if (!other) return;
    try {
      const [ours, theirs, files] = await Promise.all([facts(this.#jobId), facts(other), codeDifferences(this.#jobId, other)]);
      if (asked === this.#asked) this.#show(differing(ours, theirs), files);
    } catch (error) {
      if (asked === this.#asked) setText(byId("difference-found"), error instanceof Error ? error.message : String(error));
    }
  }

  /**
   * @param {Row[]} rows
   * @param {import("./job-api.js").FileDifference[] | string} files a sentence where the code cannot be compared
   */
  #show(rows, files) {
    const told = typeof files === "string" ? files : files.length ? `${files.length} ${files.length === 1 ? "file differs" : "files differ"}` : "same code";
    setText(byId("difference-found"), `${rows.length ? `${rows.length} ${rows.length === 1 ? "entry differs" : "entries differ"}` : "same configuration"}; ${told}`);
    byId("difference").replaceChildren(...(rows.length ? [table(rows)] : []), ...(typeof files === "string" ? [] : files.map(fileNode)));
    byId("difference").hidden = false;
  }
}

/**
 * Everything that can be compared of one job, by label.
 *
 * @param {string} id
 * @returns {Promise<Map<string, string>>}
 */
async function facts(id) {
  const [job, configuration] = await Promise.all([readJob(id), readConfiguration(id)]);
  const packages = Object.entries(configuration.surroundings?.packages ?? {});
  const entries = [...entriesOf(job), ...factsOf(configuration)].map(([label, values]) => /** @type {const} */ ([label, values.join(" ")]));
  return new Map([...entries, ...packages.map(([name, version]) => /** @type {const} */ ([PACKAGE + name, version]))]);
}

/**
 * Packages only where those of both are on record: a job that has not run yet has none.
 *
 * @param {Map<string, string>} ours
 * @param {Map<string, string>} theirs
 * @returns {Row[]}
 */
function differing(ours, theirs) {
  const known = [ours, theirs].every((facts) => [...facts.keys()].some((label) => label.startsWith(PACKAGE)));
  const told = (/** @type {string} */ label) => !ALWAYS.has(label) && (known || !label.startsWith(PACKAGE));
  const labels = [...new Set([...ours.keys(), ...theirs.keys()])].filter(told);
  return labels.flatMap((label) => {
    const [one, other] = [ours.get(label) ?? "", theirs.get(label) ?? ""];
    return one === other ? [] : [/** @type {Row} */ ([label, one, other])];
  });
}

/**
 * @param {string} ours
 * @param {string} theirs
 */
async function codeDifferences(ours, theirs) {
  try {
    return await compareCode(ours, theirs);
  } catch (error) {
    if (error instanceof Problem && error.status === 409) return "no code to compare";
    throw error;
  }
}

/** @param {Row[]} rows */
function table(rows) {
  const head = h("tr", {}, ...["", "This job", "The other"].map((title) => h("th", { scope: "col" }, title)));
  const body = rows.map(([label, ours, theirs]) => h("tr", {}, h("th", { scope: "row" }, h("bdi", {}, label)), cell(ours), cell(theirs)));
  return h("div", { class: "scroll-x", tabindex: 0, role: "region", "aria-label": "Differences" }, h("table", {}, h("thead", {}, head), h("tbody", {}, ...body)));
}

/** @param {string} text */
const cell = (text) => h("td", {}, text ? h("code", {}, text) : h("span", { class: "muted" }, "–"));

/** @param {import("./job-api.js").FileDifference} file */
function fileNode({ path, change, diff }) {
  const title = h("summary", {}, h("code", {}, path), " ", h("span", { class: "muted" }, change));
  const kind = (/** @type {string} */ line) => (line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "");
  const lines = (diff ?? "").split("\n").slice(2).map((line) => h("span", { class: kind(line) }, `${line}\n`));
  const body = diff === null ? h("p", { class: "muted" }, "Its lines are not shown.") : h("pre", { tabindex: 0 }, ...lines);
  return h("details", { open: diff !== null && lines.length < 60 }, title, body);
}
