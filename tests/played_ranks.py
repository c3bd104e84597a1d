"""Ranks that only exist in a test's own time: what they do, second by second, as a `HangDetector` would observe it.

A program is a generator that yields what its rank does next: one of the classes below. Collectives of a group begin
when all its ranks have come and last as long as the slowest says, so ranks wait for each other as real ones do.
"""

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from rekindle.contract.rank_traces import Collective, Frame
from rekindle.contract.run_dir.paths import AttemptDir, RankDir
from rekindle.keeper.attempt_result import Hang, RankResult
from rekindle.keeper.hangs import detector
from rekindle.keeper.hangs.detector import HangDetector
from rekindle.keeper.rank_processes.probe import RankSample

CODE = Path("/code")
_SCRIPT = Frame("/code/train.py", 7, "main")
_IN_COLLECTIVE = [Frame("/lib/torch/distributed/distributed_c10d.py", 3000, "all_reduce"), _SCRIPT]
_HISTORY = 64  # collectives that are remembered


@dataclass(frozen=True, slots=True)
class Work:
    """``seconds`` outside of collectives, with ``cpu`` processor seconds in each; ``state``: the kernel's letter."""

    seconds: float
    cpu: float = 1.0
    state: str = "R"
    frames: tuple[Frame, ...] = (Frame("/lib/torch/nn/functional.py", 1, "linear"), _SCRIPT)
    events: float = 100.0  # page faults, system calls and waits a second
    answers: bool = True  # the rank's debug server does


def wait(seconds: float, file: str = "/lib/subprocess.py", function: str = "wait", state: str = "S") -> Work:
    """What needs no processor: a child process, a disk, a lock."""
    return Work(seconds, 0.0, state, (Frame(file, 1, function), _SCRIPT), 0.0)


@dataclass(frozen=True, slots=True)
class Join:
    """A collective of ``group``, of which ``members`` are all ranks where it is empty."""

    seconds: float = 0.001  # for which it lasts once all have come
    operation: str = "all_reduce"
    shape: str = "[[10]] Float"
    group: str = "0"
    members: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Report:
    """What the script reports or prints; it takes no time."""

    step: int | None = None
    phase: str | None = None
    output: int = 0  # bytes


Program = Iterator[Work | Join | Report]


@dataclass(slots=True)
class _Rank:
    number: int
    program: Program
    at: float = 0.0  # seconds until which it is known what it does
    now: Work | Join = field(default_factory=lambda: Work(0.0))
    began: float = 0.0
    cpu: float = 0.0
    events: float = 0.0
    step: int | None = None
    phase: str | None = None
    output: int = 0
    calls: dict[str, int] = field(default_factory=dict)  # by group
    history: deque[Collective] = field(default_factory=lambda: deque(maxlen=_HISTORY))
    finished: bool = False

    def sample(self, now: float) -> RankSample:
        own = self.now
        busy, in_collective = (own, False) if isinstance(own, Work) else (None, True)
        cpu = self.cpu + (0.0 if busy is None else busy.cpu * (now - self.began))
        known = busy is None or busy.answers
        return RankSample(
            self.number, self.step, self.phase, self.output, cpu,
            max(self.calls.values(), default=None) if known else None,
            "S" if busy is None else busy.state,
            sum(self.calls.values()) if known else 0,
            in_collective=in_collective,
        )  # fmt: skip

    def thread_events(self, now: float) -> tuple[int, ...]:
        more = self.now.events * (now - self.began) if isinstance(self.now, Work) else 0.0
        return (int(self.events + more),)


class PlayedRanks:
    """All ranks of an attempt, and the detector that observes them; time is what `run` has played."""

    def __init__(self, programs: Mapping[int, Program], directory: Path, limit: float | None = None) -> None:
        self._ranks = {number: _Rank(number, program) for number, program in programs.items()}
        self._arrived: dict[tuple[str, int], dict[int, Join]] = {}
        self._due = [(0.0, number) for number in self._ranks]  # heap: when a rank does something else
        self.now = 0.0
        self.noticed: float | None = None  # seconds since which the stall is shown
        self.suspended: Callable[[float], float] = lambda _now: 0.0  # seconds for which the machine sleeps now
        self._results = [RankResult(number, number + 1, 1) for number in self._ranks]
        self._detector = _Detector(self, AttemptDir(directory), limit)

    def run(self, until: float) -> Hang | None:
        """Sample once a second; return the first hang that is found."""
        with self._patched():
            while self.now < until:
                self._pass(1.0)
                for result in self._results:
                    result.done = self._ranks[result.rank].finished
                if all(rank.finished for rank in self._ranks.values()):
                    return None
                if (slept := self.suspended(self.now)) > 0:  # the ranks sleep as well
                    self.now += slept
                    self._due = [(at + slept, number) for at, number in self._due]
                    for rank in self._ranks.values():
                        rank.began += slept
                if (hang := self._detector.poll(self._results, self._pass)) is not None:
                    return hang
                if self._detector.stall_changed:
                    self.noticed = None if self._detector.stall is None else self.noticed or self.now
        return None

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        while self._due and self._due[0][0] <= self.now:
            at, number = heapq.heappop(self._due)
            self._continue(self._ranks[number], at)

    def _continue(self, rank: _Rank, at: float) -> None:
        """Do what the program of ``rank`` does from ``at`` on."""
        if isinstance(rank.now, Work):
            rank.cpu += rank.now.cpu * (at - rank.began)
            rank.events += rank.now.events * (at - rank.began)
        elif rank.history:
            rank.history[-1] = replace(rank.history[-1], completed=True)
        for doing in rank.program:
            if isinstance(doing, Report):
                rank.step = rank.step if doing.step is None else doing.step
                rank.phase = rank.phase if doing.phase is None else doing.phase
                rank.output += doing.output
                continue
            rank.now, rank.began = doing, at
            if isinstance(doing, Work):
                heapq.heappush(self._due, (at + doing.seconds, rank.number))
            else:
                self._join(rank, doing, at)
            return
        rank.finished = True

    def _join(self, rank: _Rank, call: Join, at: float) -> None:
        number = rank.calls[call.group] = rank.calls.get(call.group, 0) + 1
        rank.history.append(Collective(call.group, number, call.operation, call.shape))
        arrived = self._arrived.setdefault((call.group, number), {})
        arrived[rank.number] = call
        kinds = {(each.operation, each.shape if each.operation == "all_reduce" else "") for each in arrived.values()}
        if arrived.keys() == (call.members or self._ranks.keys()) and len(kinds) == 1:
            del self._arrived[call.group, number]
            end = at + max(one.seconds for one in arrived.values())
            for each in arrived:
                heapq.heappush(self._due, (end, each))

    @contextmanager
    def _patched(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "monotonic", lambda: self.now)
            patch.setattr(detector, "probe", lambda rank, *_, **__: self._ranks[rank].sample(self.now))
            patch.setattr(detector, "main_thread_events", lambda pid: self._ranks[pid - 1].thread_events(self.now))
            patch.setattr(detector, "has_free_space", lambda _: True)
            patch.setattr(detector, "kernel_call", lambda _: None)
            patch.setattr(detector, "rank_exceptions", lambda _: "")
            patch.setattr(detector, "last_collective", lambda directory, **_: self._sampled(directory).collectives)
            patch.setattr(detector, "collective_history", lambda directory, **_: self._history(directory))
            patch.setattr(detector, "main_stack", lambda dump: self.frames(int(dump)) if dump else [])
            yield

    def _sampled(self, directory: RankDir) -> RankSample:
        return self._ranks[int(directory.root.name)].sample(self.now)

    def _history(self, directory: RankDir) -> list[Collective] | None:
        rank = self._ranks[int(directory.root.name)]
        return list(rank.history) if not isinstance(rank.now, Work) or rank.now.answers else None

    def frames(self, rank: int) -> list[Frame]:
        doing = self._ranks[rank].now
        return list(doing.frames) if isinstance(doing, Work) else _IN_COLLECTIVE


class _Detector(HangDetector):
    """Asks no process for its stack."""

    def __init__(self, played: PlayedRanks, directory: AttemptDir, limit: float | None) -> None:
        super().__init__(directory, CODE, limit, directory.root / "pace.json", saves_pace=False)
        self._next_sample = 0.0

    def _traceback(self, rank: int) -> str:
        return str(rank)

    def _stacks(self, running: list[RankResult], wait: Callable[[float], None]) -> dict[int, str]:
        return {rank.rank: str(rank.rank) for rank in running}
