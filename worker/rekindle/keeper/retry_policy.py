"""What to do after an attempt: retry or stop. Pure; ``ACTIONS`` is the table of docs/failures.md.

It never retries what a retry cannot cure, and never gives up what a retry would have cured.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from rekindle.contract.backoff import exponential_backoff
from rekindle.contract.job import HEALTHY_SECONDS
from rekindle.contract.outcome import Outcome, OutcomeClass, SavedProgress
from rekindle.contract.run_dir.attempt_history import AttemptInfo

MIN_DELAY = 1.0  # seconds
MAX_DELAY = 60.0  # seconds
MAX_HARDWARE = 10  # retries in a row after errors of a GPU, without progress
MAX_SAME = 10  # attempts in a row with the same ending, whatever was loaded and saved
SIMILAR_SHARE = 0.2  # by which two running times may differ and still be similar
SIMILAR_SECONDS = 1.0  # the same for short ones
SAME_HANGS = 3  # the same in a row: from then on each next attempt waits twice as long for what may end
MAX_TIMEOUT_FACTOR = 8  # times as long as usual
_OWN_SIGNALS = {"SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS"}
"""Signals that a process causes itself; every other one comes from outside."""


class Action(Enum):
    """What a class of outcome calls for, progress and budget aside."""

    FINISH = auto()  # nothing is left to do
    RETRY = auto()  # and count the failure against the budget
    RETRY_FREE = auto()  # the script did not cause it, so it does not count
    STOP = auto()  # a retry cannot help


ACTIONS: dict[OutcomeClass, Action] = {
    OutcomeClass.SUCCESS: Action.FINISH,
    OutcomeClass.USER_ERROR: Action.RETRY,
    OutcomeClass.OOM: Action.RETRY,
    OutcomeClass.SIGNAL: Action.RETRY,
    OutcomeClass.HANG: Action.RETRY,
    OutcomeClass.COMM: Action.RETRY,
    OutcomeClass.NAN: Action.STOP,
    OutcomeClass.DIVERGENCE: Action.RETRY,
    OutcomeClass.DISK_FULL: Action.RETRY,
    OutcomeClass.PREEMPTED: Action.RETRY_FREE,
    OutcomeClass.CANCELLED: Action.STOP,
    OutcomeClass.LAUNCH_ERROR: Action.RETRY,
    OutcomeClass.KEEPER_LOST: Action.RETRY_FREE,
    OutcomeClass.HOST_LOST: Action.RETRY_FREE,
}


def _action(attempt: AttemptInfo) -> Action:
    """Action by the class of the outcome; but a hardware error is not the script's."""
    by_class = ACTIONS[attempt.ended_by.klass]
    return Action.RETRY_FREE if by_class is Action.RETRY and attempt.ended_by.evidence.get("hardware") else by_class


def is_from_outside(attempt: AttemptInfo) -> bool:
    """True where a signal that no process causes itself has ended it: no evidence against the script."""
    outcome, name = attempt.ended_by, attempt.ended_by.signal
    signalled = name is not None and name not in _OWN_SIGNALS and outcome.klass is not OutcomeClass.OOM
    return signalled or outcome.exception == "KeyboardInterrupt"


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


def decide(
    history: Sequence[AttemptInfo],
    max_failures: int,
    jitter: float = 0.0,
    healthy_seconds: float = HEALTHY_SECONDS,
) -> Retry | Stop:
    """The decision after the last attempt of ``history`` (all attempts of this run, oldest first).

    ``jitter`` in [0, 1) lengthens a delay by up to a quarter, so that jobs that fail together do not restart together.
    Where progress is not known, an attempt that ran for ``healthy_seconds`` clears the count of failures. The same
    ending ``MAX_SAME`` times in a row ends the job, unless ``max_failures`` allows more: its checkpoints lead nowhere.
    """
    last = history[-1]
    if last.ended_by.is_resize:
        return Retry(0.0, "the job gets other devices: the next attempt begins at once")
    if _action(last) is Action.FINISH:
        return Stop(succeeded=True, reason="every rank finished")
    if _action(last) is Action.STOP or not last.ended_by.retryable:
        return Stop(succeeded=False, reason=f"{last.ended_by.klass} is not retryable")
    counts = _FailureCounts(healthy_seconds)
    for attempt in history:
        counts.add(attempt)
    if last.ended_by.evidence.get("hardware") and counts.free > MAX_HARDWARE:
        return Stop(succeeded=False, reason=f"a GPU failed in {counts.free} attempts in a row without progress")
    if counts.same >= max(MAX_SAME, max_failures):
        return Stop(succeeded=False, reason=_reason_of_same(last, counts))
    if not counts.counted:
        return Retry(_delay(counts.fruitless - 1, jitter), _reason_of_free(last, counts))
    if (proof := _proof_of_a_bug(counts.before, last, repeated=counts.endings > 1)) is not None:
        return Stop(succeeded=False, reason=proof)
    delay, count = _delay(max(counts.failures, counts.same - 1), jitter), f"failure {counts.failures} of {max_failures}"
    if counts.failures < max_failures:
        return Retry(delay, count + _WITHOUT_PROGRESS[last.progress])
    return _with_more_time(history, delay) or Stop(False, _reason_to_stop(last, counts, max_failures))


def timeout_factor(history: Sequence[AttemptInfo]) -> int:
    """How many times as long the next attempt waits for what may end by itself, such as an upload."""
    count, last = 0, None
    for attempt in reversed([each for each in history if _action(each) is not Action.RETRY_FREE]):
        may_end = attempt.ended_by.klass is OutcomeClass.HANG and attempt.ended_by.evidence.get("may_end")
        if not may_end or (last is not None and _ending(attempt.ended_by) != last):
            break
        count, last = count + 1, _ending(attempt.ended_by)
    return min(1 << max(count - SAME_HANGS + 1, 0), MAX_TIMEOUT_FACTOR)


def _with_more_time(history: Sequence[AttemptInfo], delay: float) -> Retry | None:
    """Allow another attempt after the last failure that is allowed, where it gets more time than the one before."""
    if (times := timeout_factor(history)) <= timeout_factor(history[:-1]):
        return None
    return Retry(
        delay, f"the wait may end by itself: the next attempt waits {times} times as long before it counts as hung"
    )


@dataclass(slots=True)
class _FailureCounts:
    """What the attempts add up to; all but the counts describe the last one that was added."""

    healthy_seconds: float
    failures: int = 0  # that count since the last progress
    free: int = 0  # attempts in a row that neither count nor progressed
    counted: bool = False
    endings: int = 0  # in a row, each the same at a similar point
    same: int = 0  # as ``endings``, whatever was loaded and however long it ran; none by a signal from outside
    fruitless: int = 0  # attempts in a row that gained nothing, as far as known
    before: AttemptInfo | None = None  # the attempt to compare with: free retries are compared among themselves
    _latest: dict[bool, tuple[AttemptInfo, int, int]] = field(default_factory=dict)  # by whether it is a free retry

    def add(self, attempt: AttemptInfo) -> None:
        if attempt.ended_by.is_resize:  # nothing to compare with: it shows only whether there was progress
            self._clear_if_progressed(attempt, repeated=False)
            return
        is_free = _action(attempt) is Action.RETRY_FREE
        before, endings, same = self._latest.get(is_free, (None, 0, 0))
        similar = before is not None and _is_similar(before, attempt)
        repeated = before is not None and similar and self._is_repetition(before, attempt)
        self.before = before
        self.endings = endings + 1 if repeated else 1
        self.same = 0 if is_free or is_from_outside(attempt) else same + 1 if similar else 1
        self._latest[is_free] = attempt, self.endings, self.same
        progressed = self._clear_if_progressed(attempt, repeated=repeated)
        self.counted = not is_free and _counts(attempt, repeated=repeated)
        self.failures += self.counted
        self.free = 0 if self.counted or progressed else self.free + 1
        self.fruitless = max(self.free, self.repetitions if attempt.progress is SavedProgress.KNOWN else 0)

    @property
    def repetitions(self) -> int:
        return max(self.endings, self.same)

    def _clear_if_progressed(self, attempt: AttemptInfo, *, repeated: bool) -> bool:
        """True for known progress; where it cannot be known, a long time clears the count, too."""
        progressed = attempt.progress is SavedProgress.KNOWN and not repeated
        healthy = attempt.progress is SavedProgress.UNKNOWN and attempt.running_seconds >= self.healthy_seconds
        if progressed or healthy:
            self.failures = self.free = 0
        return progressed

    def _is_repetition(self, before: AttemptInfo, attempt: AttemptInfo) -> bool:
        """True where what ``before`` saved, to which ``attempt`` is similar, has led no further."""
        if before.progress is not attempt.progress:
            return False
        is_short = max(before.running_seconds, attempt.running_seconds) < self.healthy_seconds
        return attempt.last_step is not None or (is_short and not attempt.loaded)


def _is_similar(before: AttemptInfo, attempt: AttemptInfo) -> bool:
    """True for the same ending at the same step, or after a similar time where the steps are not known."""
    is_further = attempt.progress is SavedProgress.KNOWN and attempt.resumed_from_step is not None
    if is_further or _ending(before.ended_by) != _ending(attempt.ended_by):
        return False
    if before.last_step is not None and attempt.last_step is not None:
        return abs(before.last_step - attempt.last_step) <= 1
    times = before.running_seconds, attempt.running_seconds
    no_steps = before.last_step is None and attempt.last_step is None
    return no_steps and max(times) - min(times) <= max(SIMILAR_SHARE * max(times), SIMILAR_SECONDS)


def _counts(attempt: AttemptInfo, *, repeated: bool) -> bool:
    """Whether an attempt that is no free retry counts as a failure."""
    match attempt.progress:
        case SavedProgress.NONE:
            return True
        case SavedProgress.UNKNOWN:
            return repeated or not is_from_outside(attempt)
        case SavedProgress.KNOWN:  # a signal at a similar time may be chance, where a checkpoint may have been loaded
            return repeated and (
                attempt.last_step is not None or attempt.loaded is False or not is_from_outside(attempt)
            )


def _proof_of_a_bug(before: AttemptInfo | None, last: AttemptInfo, *, repeated: bool) -> str | None:
    """Evidence that every further attempt would end like the last two, which are known to have saved nothing."""
    if before is None or not (before.progress is last.progress is SavedProgress.NONE):
        return None
    if last.ended_by.exception is not None and _ending(before.ended_by) == _ending(last.ended_by):
        return "the same exception twice without progress in between"
    if repeated and last.ended_by.signal in _OWN_SIGNALS:
        return f"{last.ended_by.signal} twice at the same point without progress in between"
    return None


_WITHOUT_PROGRESS = {
    SavedProgress.NONE: " without progress",
    SavedProgress.UNKNOWN: "; whether there was progress is not known",
    SavedProgress.KNOWN: ": the same ending at the same point, although the script saves",
}


def _reason_to_stop(last: AttemptInfo, counts: _FailureCounts, max_failures: int) -> str:
    if last.progress is SavedProgress.KNOWN:
        return (
            f"the same ending at the same point {counts.endings} times, although the script saves: does it load its "
            f"checkpoint? max_failures is {max_failures}"
        )
    failures = "1 failure" if counts.failures == 1 else f"{counts.failures} failures in a row"
    return f"{failures}{_WITHOUT_PROGRESS[last.progress]}; max_failures is {max_failures}"


def _reason_of_same(last: AttemptInfo, counts: _FailureCounts) -> str:
    saved = {
        SavedProgress.NONE: "without progress",
        SavedProgress.UNKNOWN: "whether there was progress is not known",
        SavedProgress.KNOWN: "although the script saves",
    }[last.progress]
    point = "after a similar time" if last.last_step is None else "at the same step"
    return f"the same ending {point} {counts.same} times in a row, {saved}"


def _reason_of_free(last: AttemptInfo, counts: _FailureCounts) -> str:
    if _action(last) is Action.RETRY_FREE or last.progress is not SavedProgress.KNOWN:
        return f"{last.ended_by.signal or last.ended_by.klass} does not count as a failure"
    if counts.repetitions > 1:
        return f"the attempt made progress; the same ending after a similar time, {counts.repetitions} times in a row"
    return "the attempt made progress: retrying at once"


def _delay(failures: int, jitter: float) -> float:
    return exponential_backoff(failures, MIN_DELAY, MAX_DELAY) * (1 + jitter / 4)


def _ending(outcome: Outcome) -> tuple[object, ...]:
    """Value that is equal for two attempts that ended in the same way, as by the same exception at the same line."""
    if outcome.exception is not None:
        return outcome.exception, outcome.file, outcome.line
    return outcome.klass, outcome.signal, outcome.exit_code, outcome.file, outcome.line
