/**
 * What happened to the job, at the top of its page: the cause in a sentence, the lines of code, and what can be done.
 *
 * @import { JobPublic as Job, RankGroup, SameError, Story, StoryFrame as Frame } from "../shared/api-types.d.ts"
 */
import { END, linkTo } from "../log/log-permalink.js";
import { call, jobUrl } from "../shared/api.js";
import { byId, copyText, h, setText } from "../shared/dom.js";
import { counted, localTime, rankNames } from "../shared/format.js";
import { latestWins } from "../shared/timing.js";

/** Frames of the user's code whose source lines are shown at once. */
const UNFOLDED = 2;
/** Kinds of which there is more to show than the banner of the header does. */
const SHOWN = new Set(["failure", "hang", "stop", "running"]);

export class StoryView {
  #jobId;
  #onStory;
  /** @type {number | null} attempt that the user has chosen; null: the job as it is now */
  #attempt = null;
  /** What is shown: it is drawn again only when it has changed, since that folds what the user has unfolded. */
  #shown = "";
  #fetch = latestWins(() => call("GET /jobs/{job_id}/story", { job_id: this.#jobId, attempt: this.#attempt }), (story) => this.#show(story));

  /** @param {string} jobId @param {(story: Story, isFirst: boolean) => void} onStory */
  constructor(jobId, onStory) {
    this.#jobId = jobId;
    this.#onStory = onStory;
  }

  refresh() {
    return this.#fetch();
  }

  /** Explain one attempt, or again the job as it is now. @param {number | null} attempt */
  async choose(attempt) {
    this.#attempt = attempt;
    await this.#fetch();
    byId("story").scrollIntoView({ block: "nearest" });
    byId("story-title").focus();
  }

  /** @param {Story} story */
  #show(story) {
    const first = this.#shown === "";
    const shown = JSON.stringify([this.#attempt, story]);
    if (this.#shown === shown) return;
    this.#shown = shown;
    const section = byId("story");
    section.hidden = !SHOWN.has(story.kind) || (story.kind === "running" && story.attempt < 2);
    section.dataset.kind = story.kind;
    setText(byId("story-title"), this.#attempt === null ? story.title : `Attempt ${story.attempt}: ${story.title}`);
    byId("story-actions").replaceChildren(...this.#actions(story));
    byId("story-body").replaceChildren(...body(story));
    this.#onStory(story, first);
  }

  /** @param {Story} story */
  #actions(story) {
    const bad = story.kind === "failure" || story.kind === "hang";
    const before = story.kind === "running" && story.attempt - 1;
    return [
      this.#attempt !== null && button("story-now", "Back to the job as it is now", () => void this.choose(null)),
      before && button("story-before", `What happened to attempt ${before}`, () => void this.choose(before)),
      bad && story.rank !== null && h("a", { id: "story-log", class: story.repeated ? "button primary" : "button", href: logLink(story) }, "Open in the log"),
      bad && button("story-copy", "Copy", () => void copyText(asText(story), byId("story-copied"))),
    ].filter((node) => node instanceof Node);
  }
}

/** @param {string} id @param {string} text @param {() => void} onclick */
const button = (id, text, onclick) => h("button", { id, type: "button", onclick }, text);

/** To the line of the culprit's log at which it reports its failure. @param {Story} story */
function logLink({ rank, stream, attempt, offset }) {
  return linkTo({ rank: rank ?? 0, stream: stream ?? "stderr", attempt, offset: offset ?? END });
}

/** @param {Story} story @returns {Node[]} */
function body(story) {
  const { sentence, at, groups, frames, hidden_frames: hidden, same_error: same, next_step: nextStep } = story;
  const time = at === null ? null : h("time", { datetime: new Date(at * 1000).toISOString() }, localTime(new Date(at * 1000).toISOString()));
  const shown = groups.length ? groups.map(groupNode) : frameNodes(frames, hidden);
  const message = details(story);
  return [
    h("p", {}, h("bdi", {}, sentence), " ", time && h("span", { class: "muted" }, time)),
    ...(message ? [message] : []),
    ...shown,
    ...(groups.length && frames.length > 1 ? [folded(`Stack of rank ${story.rank}`, frames, hidden)] : []),
    ...(nextStep ? [h("p", {}, ...withCode(nextStep))] : []),
    ...(same.length ? [sameErrorNode(same)] : []),
    h("output", { id: "story-copied", class: "muted" }),
  ];
}

/** Text with commands between backticks. @param {string} text */
const withCode = (text) => text.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part));

/** The rest of a message of several lines, of which the sentence has the first. @param {Story} story */
function details({ exception }) {
  const lines = exception?.message.split("\n") ?? [];
  return lines.length > 1 ? h("pre", { class: "story-message", tabindex: 0, role: "group", "aria-label": "Message" }, lines.join("\n")) : null;
}

/** @param {RankGroup} group */
function groupNode({ ranks, what, frames }) {
  const [first] = frames;
  return h("div", { class: "story-group" }, h("p", {}, h("strong", {}, rankNames(ranks)), " ", h("bdi", {}, what)), first ? sourceNode(first) : null);
}

/** The user's frames, and those of libraries folded. @param {Frame[]} frames @param {number} hidden how many more there are */
function frameNodes(frames, hidden) {
  const own = frames.filter((frame) => frame.is_user);
  const open = own.length ? own.slice(0, UNFOLDED) : frames.slice(0, 1);
  const rest = frames.filter((frame) => !open.includes(frame));
  return [...open.map(frameNode), ...(rest.length || hidden ? [folded(foldedText(rest, hidden), rest, hidden)] : [])];
}

/** @param {Frame[]} rest @param {number} hidden */
function foldedText(rest, hidden) {
  const libraries = rest.filter((frame) => !frame.is_user).length;
  const more = rest.length + hidden;
  return libraries === more ? `${counted(more, "frame")} in libraries` : `${counted(more, "more frame")}${libraries ? `, ${libraries} in libraries` : ""}`;
}

/** @param {string} summary @param {Frame[]} frames @param {number} hidden */
function folded(summary, frames, hidden) {
  const more = hidden ? h("p", { class: "muted" }, `${counted(hidden, "more frame")}: see the log.`) : null;
  return h("details", {}, h("summary", {}, summary), ...frames.map(frameNode), more);
}

/** @param {Frame} frame */
function frameNode(frame) {
  const note = frame.source_state === "changed" ? "the file has changed since" : "";
  return h(
    "div",
    { class: "story-frame", "data-user": frame.is_user },
    h("p", {}, h("code", {}, place(frame)), " ", frame.function && h("span", {}, "in ", h("code", {}, frame.function)), " ", note && h("span", { class: "late" }, note)),
    sourceNode(frame),
  );
}

/** @param {Frame} frame */
const place = ({ file, line }) => `${file}:${line}`;

/** @param {Frame} frame */
function sourceNode({ source, line, file }) {
  if (!source.length) return null;
  const rows = source.map((each) => h("span", { class: "source-line", "data-line": each.line, "data-at": each.line === line }, each.text || " "));
  return h("pre", { class: "source", tabindex: 0, role: "group", "aria-label": `Source of ${file} around line ${line}` }, ...rows);
}

/** @param {SameError[]} same */
function sameErrorNode(same) {
  const links = same.map(({ id, number, name }) => h("a", { href: jobUrl(id) }, h("bdi", {}, `#${number} ${name}`)));
  return h("p", { class: "links" }, h("span", { class: "muted" }, "Other jobs with the same error:"), ...links);
}

/** For a report or a message to somebody: plain text. @param {Story} story */
function asText({ title, sentence, exception, groups, frames, hidden_frames: hidden, next_step: nextStep }) {
  return [
    title,
    sentence,
    exception && exception.message.includes("\n") ? exception.message : "",
    ...groups.map(({ ranks, what }) => `${rankNames(ranks)} ${what}`),
    ...frames.flatMap((frame) => [`  ${place(frame)} in ${frame.function}`, ...frame.source.map((each) => `${each.line === frame.line ? "  >" : "   "} ${each.line} ${each.text}`)]),
    hidden ? `  … ${counted(hidden, "more frame")}` : "",
    nextStep ?? "",
  ].filter(Boolean).join("\n");
}

/** Whether the story of a job may be another one now. @param {Job} before @param {Job} now */
export const isOutdated = (before, now) =>
  before.state !== now.state || before.attempt !== now.attempt || before.intent !== now.intent || before.outcome?.message !== now.outcome?.message;
