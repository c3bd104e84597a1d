"""What to do after an attempt: retry or stop. Pure; ``ACTIONS`` is the table of docs/failures.md."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import takewhile

from rekindle.contract.backoff import exponential_backoff
from rekindle.contract.outcome import Outcome, OutcomeClass

MIN_DELAY = 1.0  # seconds
MAX_DELAY = 60.0  # seconds
ATTEMPTS_WITHOUT_PROGRESS = 3


class Action(Enum):
    """What a class of outcome calls for, progress and budget aside."""

    FINISH = auto()  # nothing is left to do
    RETRY = auto()  # and count the failure against the budget
    RETRY_FREE = auto()  # the script is not to blame, so it does not count
    STOP = auto()  # a retry cannot help


ACTIONS: dict[OutcomeClass, Action] = {
    OutcomeClass.SUCCESS: Action.FINISH,
    OutcomeClass.USER_ERROR: Action.RETRY,
    OutcomeClass.OOM: Action.RETRY,
    OutcomeClass.SIGNAL: Action.RETRY,
    OutcomeClass.HANG: Action.RETRY,
    OutcomeClass.COMM: Action.RETRY,
    OutcomeClass.NAN: Action.STOP,
    OutcomeClass.DISK_FULL: Action.RETRY,
    OutcomeClass.PREEMPTED: Action.RETRY_FREE,
    OutcomeClass.CANCELLED: Action.STOP,
    OutcomeClass.LAUNCH_ERROR: Action.RETRY,
    OutcomeClass.KEEPER_LOST: Action.RETRY_FREE,
    OutcomeClass.HOST_LOST: Action.RETRY_FREE,
}


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt of the history: how it ended, and whether it committed a later step than it started from."""

    outcome: Outcome
    progressed: bool

    @property
    def action(self) -> Action:
        return ACTIONS[self.outcome.klass]


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after ``delay`` seconds."""

    delay: float
    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The job is over."""

    succeeded: bool
    reason: str


def decide(history: Sequence[AttemptRecord], max_failures: int, jitter: float = 0.0) -> Retry | Stop:
    """The decision after the last attempt of ``history`` (all attempts of this run, oldest first).

    ``jitter`` in [0, 1) lengthens a delay by up to a quarter, so that jobs that fail together do not restart together.
    """
    last = history[-1]
    if last.action is Action.FINISH:
        return Stop(succeeded=True, reason="every rank finished")
    if last.action is Action.STOP or not last.outcome.retryable:
        return Stop(succeeded=False, reason=f"{last.outcome.klass} is not retryable")
    if last.action is Action.RETRY_FREE:
        # Nothing stops such a row, so it must at least slow down: a script may ask to be preempted again and again.
        uncounted = _repeats(history, lambda one: one.action is Action.RETRY_FREE and not one.progressed)
        return Retry(_delay(uncounted, jitter), f"{last.outcome.klass} does not count as a failure")
    if last.progressed:
        # Nothing stops such a row either: what looks like progress may be a file that the script writes at its start,
        # or all that there was to do, before an ``os._exit`` that looks like a crash.
        repeated = _repeats(history, lambda one: one.progressed and _same_ending(one.outcome, last.outcome))
        delay = _delay(repeated, jitter)
        return Retry(delay, "the attempt made progress: retrying" + ("" if delay else " at once"))
    return _within_budget(history, max_failures, jitter)


def cannot_be_forked(outcome: Outcome) -> bool:
    """True where the script failed only because its rank was forked from a warm parent."""
    return outcome.exception == "RuntimeError" and "in forked subprocess" in outcome.message


def _within_budget(history: Sequence[AttemptRecord], max_failures: int, jitter: float) -> Retry | Stop:
    """By the failures that count since progress refilled the budget."""
    since_progress = takewhile(lambda one: not one.progressed, reversed(history))
    failures = [attempt.outcome for attempt in since_progress if attempt.action is Action.RETRY]  # newest first
    count = len(failures)
    if count >= 2 and _same_exception(*failures[:2]):
        return Stop(succeeded=False, reason="the same exception twice without progress in between")
    if count >= ATTEMPTS_WITHOUT_PROGRESS:
        return Stop(succeeded=False, reason=f"no_progress: {count} attempts without a new step")
    if count >= max_failures:
        return Stop(succeeded=False, reason=f"{count} failures without progress; max_failures is {max_failures}")
    return Retry(_delay(count, jitter), f"failure {count} of {max_failures} without progress")


def _repeats(history: Sequence[AttemptRecord], holds: Callable[[AttemptRecord], bool]) -> int:
    """Of how many attempts in a row ``holds`` is true, before the last one."""
    return max(sum(1 for _ in takewhile(holds, reversed(history))) - 1, 0)


def _delay(failures: int, jitter: float) -> float:
    return exponential_backoff(failures, MIN_DELAY, MAX_DELAY) * (1 + jitter / 4)


def _same_ending(one: Outcome, other: Outcome) -> bool:
    """By the same exception, or by none and with the same exit code."""
    silent = one.exit_code is not None and one.exception is other.exception is None
    return _same_exception(one, other) or (silent and one.exit_code == other.exit_code)


def _same_exception(one: Outcome, other: Outcome) -> bool:
    key = (one.exception, one.file, one.line)
    return one.exception is not None and key == (other.exception, other.file, other.line)
