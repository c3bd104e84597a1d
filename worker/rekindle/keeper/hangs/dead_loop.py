"""Distinguishes an endless loop from an evaluation: both compute, outside of a collective and without a finished step.

A loop that does nothing stays in one function of the user's own code, and its thread neither allocates memory, nor
reads or writes, nor waits for another thread. A thread that waits for its GPU does just that, and stays at the
line that waits: in a job of several ranks it counts as such a loop.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rekindle.contract.rank_traces import Frame

SAMPLES = 8  # in a row, a second apart, that must be alike
_MAX_EVENTS = 2  # page faults and so on between two samples


@dataclass(frozen=True, slots=True)
class BusySample:
    """What one rank that computes outside of a collective does.

    The rank answers a request for its frames, for which its main thread waits, often on a busy machine: that is why its
    events are counted before and after.
    """

    step: int | None
    frames: Sequence[Frame]  # main thread, innermost first; none where the rank did not answer in time
    events_before: tuple[int, ...] | None  # of the main thread so far
    events_after: tuple[int, ...] | None
    waits_for_gpu: bool = False


@dataclass(slots=True)
class DeadLoopDetector:
    """Add a sample a second of every rank that computes; ``forget`` those that do something else."""

    code: Path
    _last: dict[int, BusySample] = field(default_factory=dict)
    _alike: dict[int, int] = field(default_factory=dict)

    def add(self, rank: int, sample: BusySample) -> bool:
        """Add a sample; true once the latest of ``rank`` show an endless loop. One without frames shows nothing."""
        if not sample.frames:
            return False
        before = self._last.get(rank)
        alike = before is not None and self._is_alike(before, sample)
        self._last[rank] = sample
        self._alike[rank] = self._alike.get(rank, 0) + 1 if alike else 0
        return self._alike[rank] >= SAMPLES

    def forget(self, rank: int) -> None:
        self._last.pop(rank, None)
        self._alike.pop(rank, None)

    def _is_alike(self, one: BusySample, other: BusySample) -> bool:
        if one.step != other.step or one.events_after is None or other.events_before is None:
            return False
        counted = zip(one.events_after, other.events_before, strict=True)
        few = all(0 <= after - before <= _MAX_EVENTS for before, after in counted)
        if one.waits_for_gpu or other.waits_for_gpu:
            return few and one.waits_for_gpu == other.waits_for_gpu and list(one.frames) == list(other.frames)
        own_code = Path(other.frames[0].file).is_relative_to(self.code)
        return few and own_code and _functions(one.frames) == _functions(other.frames)


def _functions(frames: Sequence[Frame]) -> list[tuple[str, str, int | None]]:
    """List all functions with the line of the call in each; the line of the innermost may change."""
    return [(frame.file, frame.function, frame.line if depth else None) for depth, frame in enumerate(frames)]
