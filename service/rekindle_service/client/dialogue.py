"""Longer conversations with a server (a list in pages, a log that grows), written once for both kinds of client.

Such a conversation is a generator. It yields an ``Ask`` and is sent the answer, yields a ``Pause`` and is resumed
afterwards; whatever else it yields is for the caller. It never waits and never touches the network itself.
"""

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from rekindle_service.client import calls
from rekindle_service.client.absence import PAUSE, Absence
from rekindle_service.client.job_answers import Job, rests
from rekindle_service.client.problems import NoServerError, ProblemError

T = TypeVar("T")

_PAGE = 100  # jobs in one answer
_POLL = 0.5  # seconds


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to a client of either kind: what it calls gives the answer, or something to be awaited for it."""

    of: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


Dialogue = Generator[Ask | Pause | T, Any, None]


def hold(client: object, dialogue: Dialogue[T]) -> Iterator[T]:
    """Lead ``dialogue`` with a blocking client; gives what is for the caller."""
    answer, error = None, None
    while True:
        try:
            step = dialogue.send(answer) if error is None else dialogue.throw(error)
        except StopIteration:
            return
        answer = error = None
        if isinstance(step, Ask):
            try:
                answer = step.of(client)
            except (NoServerError, ProblemError) as failed:
                error = failed
        elif isinstance(step, Pause):
            time.sleep(step.seconds)
        else:
            yield step


def patiently(dialogue: Dialogue[T], absence: Absence) -> Dialogue[T]:
    """The same dialogue, with each question repeated for as long as the server is away."""
    answer: Any = None
    while True:
        try:
            step = dialogue.send(answer)
        except StopIteration:
            return
        answer = (yield from _insisting(step, absence)) if isinstance(step, Ask) else (yield step)


def _insisting(ask: Ask, absence: Absence) -> Generator[Any, Any, Any]:
    while True:
        try:
            answer = yield ask
        except (NoServerError, ProblemError) as error:
            absence.excuse(error)
            yield Pause(PAUSE)
        else:
            absence.over()
            return answer


def all_jobs(state: str | None, name: str | None, limit: int) -> Dialogue[Job]:
    """At most ``limit`` jobs, page by page."""
    cursor: Any = None
    while limit > 0:
        page: calls.JobPage = yield _page(state, name, min(limit, _PAGE), cursor)
        yield from page.items
        limit, cursor = limit - len(page.items), page.next
        if cursor is None:
            return


def _page(state: str | None, name: str | None, limit: int, cursor: Any) -> Ask:
    call = calls.job_page(state=state, name=name, limit=limit, cursor=cursor)
    return Ask(lambda client: client.send(call))


def looks(job_id: str) -> Dialogue[Job]:
    """The job now and again, the last time when nothing more will happen to it by itself."""
    while True:
        job: Job = yield Ask(lambda client: client.job(job_id))
        yield job
        if rests(job):
            return
        yield Pause(_POLL)
