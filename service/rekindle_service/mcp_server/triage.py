"""What went wrong with a job, which rank caused it, and what to do next, in one answer of at most 4 KB."""

from collections.abc import Mapping, Sequence
from typing import Any

from rekindle.contract.states import TERMINAL
from rekindle_service.client import AsyncClient, Attempt, Job, Story, StoryFrame, TimedLine
from rekindle_service.mcp_server.marked_answers import WORD, Answer, Sentence, bounded, marked, picked, size
from rekindle_service.sanitize import sanitize_line

MAX_BYTES = 4096
_NO_FAILURES = ("success", "preempted", "cancelled")
_MAX_TEXT = 700  # characters of a message
_MAX_LINE = 200  # characters
_READ_LINES = 60
_BEFORE, _AFTER = 15, 5  # lines of the log, around the first one of the failure
_MAX_FRAMES, _MAX_ATTEMPTS = 3, 5
_KEPT = {"untrusted_log": 6, "attempts": 1, "untrusted_code": 7, "groups": 1}
"""Lists that are shortened where the answer is too long, in this order, and how many items are kept if possible."""


async def triage(client: AsyncClient, reference: str, number: int | None) -> Answer:
    """The triage of the attempt ``number``, by default of the job's latest failure."""
    job = await client.find_job(reference)
    attempts = await client.attempts(job["id"])
    story = await client.story(job["id"], _latest_failure(job, attempts) if number is None else number)
    attempt = next((each for each in attempts if each["number"] == story["attempt"]), None)
    is_latest = attempt is None or attempt is attempts[-1]
    outcome: Mapping[str, Any] = (
        (attempt["outcome"] if attempt else None) or (job["outcome"] if is_latest else None) or {}
    )
    stalled: Mapping[str, Any] = (job["stalled"] if is_latest else None) or {}
    rank = stalled["rank"] if stalled else story["rank"]
    ranks: dict[int | None, Mapping[str, Any]] = {}
    lines: Sequence[TimedLine] = ()
    if attempt is not None:
        ranks = {each["rank"]: each for each in await client.ranks(job["id"], attempt["number"])}
        own = rank if rank in ranks else None  # None: all of them
        page = await client.log_lines(job["id"], attempt["number"], rank=own, before="end", limit=_READ_LINES)
        lines = [*page["items"], *page["unfinished"]]
    culprit = {"rank": rank, **_place(story, outcome), **picked(ranks.get(rank, {}), "host step state")}
    answer = {
        "job": picked(job, "number id name owner state step snapshot_step restarts notice"),
        "attempt": story["attempt"],
        "cause": _cause(story, outcome, stalled),
        "culprit": culprit if rank is not None else None,
        "next_step": _next_step(job, story, is_latest=is_latest),
        "groups": [{"ranks": each["ranks"][:16], "what": each["what"]} for each in story["groups"]],
        "same_error": [each["number"] for each in story["same_error"]][:10],
        "untrusted_code": [line for each in story["frames"][:_MAX_FRAMES] for line in _source(each)],
        "untrusted_log": [_cut(f"rank {each['rank']}: {each['text']}") for each in _around(lines, story)],
        "attempts": [_attempt(each) for each in attempts[-_MAX_ATTEMPTS:]],
    }
    return _fitted(marked({key: value for key, value in answer.items() if value not in (None, [])}))


def _latest_failure(job: Job, attempts: Sequence[Attempt]) -> int | None:
    """None where the job's present is what matters: it has ended, or stalls, or has not failed."""
    if job["state"] in TERMINAL or job["stalled"]:
        return None
    failed = [each for each in attempts if each["outcome"] and each["outcome"]["class"] not in _NO_FAILURES]
    return failed[-1]["number"] if failed else None


def _cause(story: Story, outcome: Mapping[str, Any], stalled: Mapping[str, Any]) -> Answer:
    if stalled:
        own = {"code": "stalled", "untrusted_message": stalled["sentence"]}
        return own | picked(stalled, "since hung_at")
    is_own = WORD.fullmatch(str(outcome.get("exception") or ""))  # the title has no other word of the job
    title = Sentence(story["title"]) if is_own else story["title"]
    message = str(story["sentence"])[:_MAX_TEXT]
    found = {"code": outcome.get("class") or story["kind"], "title": title, "untrusted_message": message}
    return found | picked(outcome, "retryable") | ({"repeated": True} if story["repeated"] else {})


def _place(story: Story, outcome: Mapping[str, Any]) -> Answer:
    """The rank's exit, and the line: that of the outcome, else the first one in the user's code."""
    found = picked(outcome, "exception signal exit_code file line")
    frame = next((each for each in story["frames"] if each["is_user"]), None)
    if frame is not None and found.get("line", frame["line"]) == frame["line"]:
        found |= picked(frame, "file line function")
    return found


def _next_step(job: Job, story: Story, *, is_latest: bool) -> Sentence | None:
    if story["next_step"] is None:
        return None if is_latest else Sentence(f"A later attempt followed; the job is {job['state']}.")
    text = story["next_step"]
    for each in job["checkpoints"]:  # whose paths the job has chosen
        text = text.replace(sanitize_line(each["path"]), "its file")
    return Sentence(text)


def _source(frame: StoryFrame) -> list[str]:
    changed = " (changed since)" if frame["source_state"] == "changed" else ""
    lines = [
        f"{'>' if each['line'] == frame['line'] else ' '}{each['line']} {each['text']}" for each in frame["source"]
    ]
    return [_cut(each) for each in (f"{frame['file']}:{frame['line']} in {frame['function']}{changed}", *lines)]


def _around(lines: Sequence[TimedLine], story: Story) -> list[TimedLine]:
    """The lines before the failure and the first ones of it; without an offset, the last ones of the log."""
    start = story["offset"]
    later = (
        []
        if start is None
        else [each for each in lines if each["stream"] == story["stream"] and each["offset"] >= start]
    )
    chosen = [each for each in lines if each not in later][-_BEFORE:] + later[:_AFTER]
    return [each for each in lines if each in chosen]


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_LINE else f"{text[:_MAX_LINE]}…"


def _attempt(attempt: Attempt) -> Answer:
    outcome = picked(attempt["outcome"] or {}, "class rank")
    return picked(attempt, "number last_step resumed_from_step replayed_steps") | outcome


def _fitted(answer: Answer) -> Answer:
    """``answer`` within the limit; cause, culprit and next step are never dropped."""
    for kept in (_KEPT, dict.fromkeys(_KEPT, 0)):
        for key, count in kept.items():
            while len(answer.get(key, [])) > count and size(answer) > MAX_BYTES:
                answer[key].pop(0 if key in ("untrusted_log", "attempts") else -1)  # the oldest, or the last
    return bounded(answer, MAX_BYTES)
