"""What the time of a job was spent on, and the share of it that advanced the training: its goodput."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rekindle.contract.field_texts import Described
from rekindle.contract.run_dir.attempt_history import AttemptSummary, replayed_steps
from rekindle.contract.states import TERMINAL, JobState
from rekindle_service.store.tables import Job


class TimeCategory(StrEnum):
    """What a job's time can be spent on."""

    QUEUED = "queued"  # before it has slots, and between two runs: in the queue, held, or over
    WAITING = "waiting"  # backing off between two attempts of a run
    STARTING = "starting"  # it has its slots, and not every rank runs yet
    TRAINING = "training"  # steps that count
    SAVING = "saving"  # the training stood still for a snapshot, as far as the script reports it
    REPLAYED = "replayed"  # steps that were lost: see ``replayed_steps``
    STALLED = "stalled"  # no progress, from the last one to the end of the hang, or to the next


@dataclass(frozen=True, slots=True)
class Interval(Described):
    """One span of time."""

    category: TimeCategory
    """What the time was spent on."""
    attempt: int | None
    """Number of the attempt; null between attempts."""
    started_at: float
    """Seconds since the epoch."""
    seconds: float
    """Duration in seconds."""


def time_breakdown(job: Job, attempts: Sequence[AttemptSummary], now: float) -> list[Interval]:
    """The whole life of ``job`` in intervals without gaps, in order; those that took no time are omitted.

    ``attempts`` ascend by number; one without an end lasts until ``now`` (seconds since the epoch). Within an attempt
    training comes first, then all its saving, then the replayed part, then what made no progress: that is how long they
    took, not when.
    """
    intervals: list[Interval] = []
    replayed = replayed_steps(attempts)
    at, run = job.created_at, 0
    for attempt in attempts:
        if attempt.run != run:
            intervals += _until_launch(job, at, attempt.started_at, first=run == 0)
        else:
            intervals.append(Interval(TimeCategory.WAITING, None, at, attempt.started_at - at))
        intervals += _of_attempt(attempt, replayed[attempt.number], now)
        at, run = _end(attempt, now), attempt.run
    intervals += _rest(job, run, at, now)
    return [interval for interval in intervals if interval.seconds > 0]


def totals(intervals: Iterable[Interval]) -> dict[TimeCategory, float]:
    """Seconds by category."""
    sums = dict.fromkeys(TimeCategory, 0.0)
    for interval in intervals:
        sums[interval.category] += interval.seconds
    return sums


def goodput(intervals: Iterable[Interval], attempts: Sequence[AttemptSummary]) -> float | None:
    """Training over all time but that in the queue, 0 to 1.

    None before the job has got slots, and where it cannot be known: a script that reports no steps was restarted, and
    repeated an unknown part of its work.
    """
    if not all(_loss_is_known(attempt) for attempt in attempts[:-1]):
        return None
    sums = totals(intervals)
    occupied = sum(sums.values()) - sums[TimeCategory.QUEUED]
    return sums[TimeCategory.TRAINING] / occupied if occupied > 0 else None


def occupied_seconds(job: Job, attempts: Sequence[AttemptSummary], now: float) -> float | None:
    """How long the job has had slots: without the queue, and without the time between two runs. None before that."""
    if job.started_at is None:
        return None
    if not attempts:
        return max(0.0, (now if job.ended_at is None else job.ended_at) - job.started_at)
    return sum(each.seconds for each in time_breakdown(job, attempts, now) if each.category is not TimeCategory.QUEUED)


def _loss_is_known(attempt: AttemptSummary) -> bool:
    """Whether it is known how many steps were lost with an attempt that another one followed."""
    return attempt.last_step is not None or attempt.ranks_running_at is None


def _until_launch(job: Job, begin: float, end: float, *, first: bool) -> list[Interval]:
    """Intervals up to the first attempt of a run; only of the first run it is known when it got its slots."""
    launched = min(max(job.started_at, begin), end) if first and job.started_at is not None else end
    return [
        Interval(TimeCategory.QUEUED, None, begin, launched - begin),
        Interval(TimeCategory.STARTING, None, launched, end - launched),
    ]


def _of_attempt(attempt: AttemptSummary, replayed: int | None, now: float) -> list[Interval]:
    begin, end = attempt.started_at, _end(attempt, now)
    running = end if attempt.ranks_running_at is None else min(max(attempt.ranks_running_at, begin), end)
    stalled = sum(max(0.0, min((*stall, end)[1], end) - max(stall[0], running)) for stall in attempt.stalls)
    ran = max(0.0, end - running - stalled)
    reported = attempt.saving_seconds  # by the script: it may be anything
    saving = 0.0 if reported is None or not math.isfinite(reported) else min(max(reported, 0.0), ran)
    training = (ran - saving) * (1.0 - _replayed_share(attempt, replayed))
    return [
        Interval(TimeCategory.STARTING, attempt.number, begin, running - begin),
        Interval(TimeCategory.TRAINING, attempt.number, running, training),
        Interval(TimeCategory.SAVING, attempt.number, running + training, saving),
        Interval(TimeCategory.REPLAYED, attempt.number, running + training + saving, ran - saving - training),
        Interval(TimeCategory.STALLED, attempt.number, end - stalled, stalled),
    ]


def _replayed_share(attempt: AttemptSummary, replayed: int | None) -> float:
    """Share of the attempt's steps that were replayed; 0 where it is not known."""
    if not replayed or attempt.last_step is None:
        return 0.0
    return min(replayed / max(attempt.last_step - (attempt.resumed_from_step or 0), 1), 1.0)


def _rest(job: Job, run: int, at: float, now: float) -> list[Interval]:
    """Intervals from the end of the last attempt, which belongs to ``run``, to that of the job, or to now."""
    if job.state in TERMINAL:
        return [Interval(TimeCategory.WAITING, None, at, (at if job.ended_at is None else job.ended_at) - at)]
    if job.state is JobState.QUEUED:
        return [Interval(TimeCategory.QUEUED, None, at, now - at)]
    if job.run != run:
        return _until_launch(job, at, now, first=run == 0)
    return [Interval(TimeCategory.WAITING, None, at, now - at)]


def _end(attempt: AttemptSummary, now: float) -> float:
    return now if attempt.ended_at is None else attempt.ended_at
