"""What the time of a job went into, and the share of it that brought the training on: its goodput."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rekindle.contract.states import TERMINAL, JobState
from rekindle_service.store.tables import Attempt, Job


class TimeCategory(StrEnum):
    """What a job's time can go into."""

    QUEUED = "queued"  # before it has slots, and between two runs: in the queue, held, or over
    WAITING = "waiting"  # between two attempts of a run
    STARTING = "starting"  # it has its slots, and not every rank runs yet
    TRAINING = "training"  # steps that count
    SAVING = "saving"  # the training stood still for a snapshot, as far as the script tells
    REPLAYED = "replayed"  # steps that a later attempt had to do again


@dataclass(frozen=True, slots=True)
class Piece:
    """One stretch of time; ``began`` in seconds since the epoch. ``attempt`` is None where none was under way."""

    spending: TimeCategory
    attempt: int | None
    began: float
    seconds: float


def time_breakdown(job: Job, attempts: Sequence[Attempt], now: float) -> list[Piece]:
    """The whole life of ``job`` in pieces without gaps, in order; those that took no time are left out.

    ``attempts`` ascend by number; one without an end lasts until ``now`` (seconds since the epoch). Within an attempt
    training comes first, then all its saving, then what was done in vain: that is how long they took, not when.
    """
    pieces: list[Piece] = []
    at = job.created_at
    run = 0
    for index, attempt in enumerate(attempts):
        if attempt.run != run:
            pieces += _until_launch(job, at, attempt.started_at, first=run == 0)
        else:
            pieces.append(Piece(TimeCategory.WAITING, None, at, attempt.started_at - at))
        pieces += _of_attempt(attempt, _kept_share(attempt, attempts[index + 1 :]), now)
        at, run = _end(attempt, now), attempt.run
    pieces += _rest(job, run, at, now)
    return [piece for piece in pieces if piece.seconds > 0]


def totals(pieces: Iterable[Piece]) -> dict[TimeCategory, float]:
    """Seconds by what they went into."""
    sums = dict.fromkeys(TimeCategory, 0.0)
    for piece in pieces:
        sums[piece.spending] += piece.seconds
    return sums


def goodput(pieces: Iterable[Piece]) -> float | None:
    """Training over all time but that in the queue, 0 to 1; None before the job has got slots."""
    sums = totals(pieces)
    occupied = sum(seconds for spending, seconds in sums.items() if spending is not TimeCategory.QUEUED)
    return sums[TimeCategory.TRAINING] / occupied if occupied > 0 else None


def _until_launch(job: Job, begin: float, end: float, *, first: bool) -> list[Piece]:
    """Up to the first attempt of a run. When it got its slots is known of the first run; its keeper starts then."""
    launched = min(max(job.started_at, begin), end) if first and job.started_at is not None else end
    return [
        Piece(TimeCategory.QUEUED, None, begin, launched - begin),
        Piece(TimeCategory.STARTING, None, launched, end - launched),
    ]


def _of_attempt(attempt: Attempt, kept: float, now: float) -> list[Piece]:
    begin, end = attempt.started_at, _end(attempt, now)
    running = end if attempt.ranks_running_at is None else min(max(attempt.ranks_running_at, begin), end)
    ran = max(0.0, end - running)
    told = attempt.saving_seconds  # by the script: it may be anything
    saving = 0.0 if told is None or not math.isfinite(told) else min(max(told, 0.0), ran)
    training = (ran - saving) * kept
    return [
        Piece(TimeCategory.STARTING, attempt.number, begin, running - begin),
        Piece(TimeCategory.TRAINING, attempt.number, running, training),
        Piece(TimeCategory.SAVING, attempt.number, running + training, saving),
        Piece(TimeCategory.REPLAYED, attempt.number, running + training + saving, ran - saving - training),
    ]


def _rest(job: Job, run: int, at: float, now: float) -> list[Piece]:
    """From the end of the last attempt, which belongs to ``run``, to that of the job, or to now."""
    if job.state in TERMINAL:
        return [Piece(TimeCategory.WAITING, None, at, (at if job.ended_at is None else job.ended_at) - at)]
    if job.state is JobState.QUEUED:
        return [Piece(TimeCategory.QUEUED, None, at, now - at)]
    if job.run != run:
        return _until_launch(job, at, now, first=run == 0)
    return [Piece(TimeCategory.WAITING, None, at, now - at)]


def _end(attempt: Attempt, now: float) -> float:
    return now if attempt.ended_at is None else attempt.ended_at


def _kept_share(attempt: Attempt, following: Sequence[Attempt]) -> float:
    """The share of this attempt's steps that none of the following did again; 1 where nobody can tell.

    An attempt that ended before it restored anything has done nothing again.
    """
    if attempt.last_step is None:
        return 1.0
    first = attempt.resumed_from_step or 0
    again = [
        each.resumed_from_step or 0
        for each in following
        if each.resumed_from_step is not None or each.last_step is not None
    ]
    done, kept = attempt.last_step - first, min(again, default=attempt.last_step) - first
    return min(1.0, max(0.0, kept / done)) if done > 0 else 1.0
