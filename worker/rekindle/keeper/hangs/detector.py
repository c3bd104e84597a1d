"""Samples the ranks once a second: which one delays the others, and whether and why none makes progress any more."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from rekindle.contract.debug_socket import last_collective
from rekindle.contract.files import has_free_space
from rekindle.contract.run_dir.paths import AttemptDir
from rekindle.contract.safe_open import read_text_from, regular_size
from rekindle.keeper.attempt_result import Hang, RankResult
from rekindle.keeper.hangs.culprit import RankObservation, find_culprit, main_stack, position_in_code
from rekindle.keeper.hangs.stall import StallDetector
from rekindle.keeper.hangs.straggler import CollectiveSample, StragglerDetector, StragglerEvent, ranks_behind
from rekindle.keeper.ranks.probe import RankSample, probe
from rekindle.keeper.ranks.table import request_stacks

INTERVAL = 1.0  # seconds between samples
_SUSPENDED = 3.0  # seconds by which a sample is late only where this process itself was kept from running
_STACK_TIMEOUT = 2.0  # seconds for all ranks to dump their stacks; a stopped one never does
_MAX_STACK = 20_000  # characters of evidence per rank


class HangDetector:
    """One per attempt."""

    def __init__(self, attempt_dir: AttemptDir, code: Path, limit: float | None) -> None:
        self._dir, self._code = attempt_dir, code
        self._stall = StallDetector(limit)
        self._stragglers = StragglerDetector()
        self.straggler_events: list[StragglerEvent] = []  # of the latest ``poll``
        self._next_sample = time.monotonic() + INTERVAL

    def due_in(self) -> float:
        """Seconds until the next sample."""
        return self._next_sample - time.monotonic()

    def poll(self, ranks: Iterable[RankResult], wait: Callable[[float], None]) -> Hang | None:
        """Sample the running ranks if that is due. ``wait`` lets the keeper handle events meanwhile."""
        self.straggler_events = []
        late = -self.due_in()
        if late < 0:
            return None
        if late > _SUSPENDED:
            self._stall.discount(late)
        every = list(ranks)
        running = [rank for rank in every if rank.ended_at is None and not rank.done]
        now = time.monotonic()
        world = {
            rank.rank: probe(rank.rank, rank.pid, self._dir.rank(rank.rank), alone=len(every) == 1) for rank in running
        }
        self._find_stragglers(world)
        self._next_sample = time.monotonic() + INTERVAL
        stalled = self._stall.stalled(now, list(world.values())) if world else None
        if stalled is None:
            return None
        if not has_free_space(self._dir.root):  # then no rank can report its progress
            self._stall.discount(stalled)
            return None
        return self._diagnose(stalled, running, world, wait)

    def _find_stragglers(self, world: dict[int, RankSample]) -> None:
        """Where every rank's collectives are known, query those that seem to be behind once more."""
        before = {rank: sample.collectives for rank, sample in world.items() if sample.collectives is not None}
        if len(before) < len(world) or len(world) < 2:
            return
        leading = max(before.values())
        again = {rank: last_collective(self._dir.rank(rank)) for rank, last in before.items() if last < leading}
        after = {rank: last for rank, last in again.items() if last is not None}
        self.straggler_events = self._stragglers.add(CollectiveSample(before, ranks_behind(before, after)))

    def _diagnose(
        self, stalled: float, running: list[RankResult], world: dict[int, RankSample], wait: Callable[[float], None]
    ) -> Hang:
        """``world`` was sampled before the stacks are requested: the request may wake a sleeper."""
        dumps = self._stacks(running, wait)
        frames = {rank: main_stack(dump) for rank, dump in dumps.items()}
        culprit = find_culprit(
            [RankObservation(world[rank], frames[rank], position_in_code(frames[rank], self._code)) for rank in world]
        )
        evidence = {
            "seconds_without_progress": round(stalled, 1),
            "timeout_seconds": round(self._stall.timeout(time.monotonic()), 1),
            "collectives": {str(rank): sample.collectives for rank, sample in world.items()},
            "process_states": {str(rank): sample.state for rank, sample in world.items()},
            "stacks": {str(rank): dump[-_MAX_STACK:] for rank, dump in dumps.items()},
        }
        return Hang(stalled, culprit, evidence)

    def _stacks(self, running: list[RankResult], wait: Callable[[float], None]) -> dict[int, str]:
        """Request the stacks of every rank and collect what comes."""
        files = {rank.rank: self._dir.rank(rank.rank).stacks for rank in running}
        before = {rank: regular_size(path) for rank, path in files.items()}
        for rank in running:
            request_stacks(rank)
        deadline = time.monotonic() + _STACK_TIMEOUT
        while time.monotonic() < deadline and any(regular_size(files[rank]) == before[rank] for rank in files):
            wait(0.05)
        wait(0.05)  # a dump is written line by line
        return {rank: read_text_from(path, before[rank]) for rank, path in files.items()}
