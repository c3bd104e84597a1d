"""What to do after an attempt: try again or stop. Pure; the table and the rules are DESIGN §4's.

Never a restart that cannot help, never a give-up that a restart would have cured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import takewhile

from rekindle.contract.outcome import Outcome, OutcomeClass

FIRST_DELAY = 1.0  # seconds
LONGEST_DELAY = 60.0  # seconds
ATTEMPTS_WITHOUT_PROGRESS = 3


class Action(Enum):
    """What a class of outcome calls for, progress and budget aside."""

    FINISH = auto()  # nothing is left to do
    RETRY = auto()  # try again, and count it against the budget
    RETRY_FREE = auto()  # try again; nobody can blame the script, so it does not count
    STOP = auto()  # another try cannot help


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
class Ended:
    """One attempt of the history: how it ended, and whether it committed a later step than it started from."""

    outcome: Outcome
    progressed: bool


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


def decide(history: Sequence[Ended], max_failures: int, jitter: float = 0.0) -> Retry | Stop:
    """The verdict after the last attempt of ``history`` (all attempts of this run, oldest first).

    ``jitter`` in [0, 1) lengthens a delay by up to a quarter, so that jobs felled together do not rise together.
    """
    last = history[-1]
    action = ACTIONS[last.outcome.klass]
    if action is Action.FINISH:
        return Stop(succeeded=True, reason="every rank finished")
    if action is Action.STOP or not last.outcome.retryable:
        return Stop(succeeded=False, reason=f"{last.outcome.klass} is not cured by another attempt")
    if action is Action.RETRY_FREE:
        return Retry(_delay(_free_in_vain(history), jitter), f"{last.outcome.klass} does not count against the budget")
    if last.progressed:
        delay = _delay(_same_again(history), jitter)
        return Retry(delay, "the attempt made progress: trying again" + ("" if delay else " at once"))
    return _budgeted(_counted_since_progress(history), max_failures, jitter)


def cannot_be_forked(outcome: Outcome) -> bool:
    """True where the script failed only because its rank was forked from a warm parent."""
    return outcome.exception == "RuntimeError" and "in forked subprocess" in outcome.message


def _counted_since_progress(history: Sequence[Ended]) -> list[Ended]:
    """The failures that count since progress refilled the budget, oldest first.

    An attempt that progressed before it failed begins the count anew with itself.
    """
    counted: list[Ended] = []
    for attempt in reversed(history):
        if ACTIONS[attempt.outcome.klass] is Action.RETRY:
            counted.append(attempt)
        if attempt.progressed:
            break
    return counted[::-1]


def _budgeted(counted: list[Ended], max_failures: int, jitter: float) -> Retry | Stop:
    barren = [attempt for attempt in counted if not attempt.progressed]
    if len(barren) >= 2 and _same_exception(barren[-2].outcome, barren[-1].outcome):
        return Stop(succeeded=False, reason="the same exception twice with no progress between")
    if len(barren) >= ATTEMPTS_WITHOUT_PROGRESS:
        return Stop(succeeded=False, reason=f"no_progress: {len(barren)} attempts without a new step")
    if len(barren) >= max_failures:
        return Stop(succeeded=False, reason=f"{len(barren)} failures without progress; max_failures is {max_failures}")
    return Retry(_delay(len(barren), jitter), f"failure {len(barren)} of {max_failures} without progress")


def _free_in_vain(history: Sequence[Ended]) -> int:
    """How many attempts have ended in a row by nobody's fault and without progress, the first of them left out.

    Nothing stops such a row, so it must at least slow down: a script may ask to be preempted again and again.
    """
    row = takewhile(
        lambda one: ACTIONS[one.outcome.klass] is Action.RETRY_FREE and not one.progressed, reversed(history)
    )
    return max(sum(1 for _ in row) - 1, 0)


def _same_again(history: Sequence[Ended]) -> int:
    """How often in a row the script has ended itself in the same way although each attempt progressed.

    Nothing stops such a row either: what looks like progress may be a file that the script writes at its start, or
    all that there was to do, before an ``os._exit`` that nobody can tell from a crash.
    """
    last = history[-1].outcome
    row = takewhile(lambda one: one.progressed and _same_ending(one.outcome, last), reversed(history))
    return max(sum(1 for _ in row) - 1, 0)


def _delay(failures: int, jitter: float) -> float:
    """Seconds: 0 after none, then 1, 2, 4 … 60, lengthened by ``jitter``."""
    if failures == 0:
        return 0.0
    return min(FIRST_DELAY * 2.0 ** min(failures - 1, 10), LONGEST_DELAY) * (1 + jitter / 4)


def _same_ending(one: Outcome, other: Outcome) -> bool:
    """By an exception, or without a word and with the same exit code."""
    silent = one.exit_code is not None and one.exception is other.exception is None
    return _same_exception(one, other) or (silent and one.exit_code == other.exit_code)


def _same_exception(one: Outcome, other: Outcome) -> bool:
    key = (one.exception, one.file, one.line)
    return one.exception is not None and key == (other.exception, other.file, other.line)
