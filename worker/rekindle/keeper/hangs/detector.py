"""Samples the ranks once a second: which one delays the others, and whether and why none makes progress any more."""

import signal
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rekindle.contract.files import has_free_space, write_json
from rekindle.contract.rank_traces import (
    Frame,
    collective_history,
    last_collective,
    main_stack,
    parse_history,
    query,
    rank_exceptions,
    waits_for_gpu,
)
from rekindle.contract.run_dir.attempt_samples import most_common_phase
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import AttemptDir
from rekindle.contract.run_dir.rank_records import RankDone, RankStatus
from rekindle.contract.safe_open import read_end, read_text_from, regular_size
from rekindle.keeper.attempt_result import Culprit, Hang, RankResult, Stall
from rekindle.keeper.diagnosis import has_timed_out
from rekindle.keeper.hangs.culprit import (
    FinishedRank,
    RankObservation,
    WorldObservation,
    find_culprit,
    find_missing_peer,
    position_in_code,
)
from rekindle.keeper.hangs.shown_stall import ShownStall
from rekindle.keeper.hangs.stall import LONG_TIMEOUT, BusySample, DeadLoopDetector, Pace, StallDetector
from rekindle.keeper.hangs.straggler import (
    CollectiveSample,
    StragglerDetector,
    StragglerEvent,
    WaitShares,
    lagging_ranks,
)
from rekindle.keeper.rank_processes.probe import RankSample, kernel_call, main_thread_events, probe
from rekindle.keeper.rank_processes.table import RankTable, request_stacks

INTERVAL = 1.0  # seconds between samples
_PACE_INTERVAL = 10.0  # seconds between two times at which what was learned is saved
_GLOO_ABORT = "gloo::EnforceNotMet"
_SUSPENDED = 3.0  # seconds by which a sample is late only where this process itself was kept from running
_MAX_PHASES = 60  # of a rank, between two times at which they are taken
_STACK_TIMEOUT = 2.0  # seconds for all ranks to dump their stacks; a stopped one never does
_MAX_STACK = 20_000  # characters of evidence per rank

Ranks = RankTable | Collection[RankResult]


@dataclass(frozen=True, slots=True)
class RankActivity:
    """What a rank does, as far as known."""

    phase: str | None  # the longest one
    step: int | None
    waiting: float | None  # share of the time in which it waited for other ranks, 0 to 1


@dataclass(frozen=True, slots=True)
class Activity:
    """What all ranks of this machine do."""

    ranks: Mapping[int, RankActivity]
    hang_after: float  # seconds without progress that are no hang yet
    without_progress: float | None  # seconds; None before the ranks run


class HangDetector:
    """Finds hangs, stalls and stragglers of one attempt."""

    def __init__(
        self,
        attempt_dir: AttemptDir,
        code: Path,
        limit: float | None,
        pace: Path,
        *,
        long_timeout: float = LONG_TIMEOUT,
        is_alone: bool = False,
        saves_pace: bool = True,
    ) -> None:
        """``pace`` is the file in which one attempt leaves to the next what it has learned about the job's speed.

        ``long_timeout``: seconds for which ranks may wait for what may end. ``is_alone``: the job has one rank.
        """
        self._dir, self._code, self._pace = attempt_dir, code, pace
        self._long_timeout, self._is_alone, self._saves_pace = long_timeout, is_alone, saves_pace
        self._stall = StallDetector(limit, read_record(pace, Pace) or Pace())
        self._stragglers, self._waits = StragglerDetector(), WaitShares()
        self._dead_loops = DeadLoopDetector(code)
        self._straggler_events: list[StragglerEvent] = []  # not taken yet
        self._shown = ShownStall(waits_for_limit=limit is not None)
        self.stall_changed = False  # by the latest ``poll``
        self._latest: dict[int, RankSample] = {}
        self._phases = defaultdict[int, deque[str | None]](lambda: deque(maxlen=_MAX_PHASES))  # not taken yet
        self._next_sample = time.monotonic() + INTERVAL
        self._pace_saved_at = time.monotonic()

    def due_in(self) -> float:
        """Seconds until the next sample."""
        return self._next_sample - time.monotonic()

    def poll(self, ranks: Ranks, wait: Callable[[float], None]) -> Hang | None:
        """Sample the running ranks if that is due. ``wait`` lets the keeper handle events meanwhile."""
        stalled = self.stalled(ranks)
        if stalled is None and not self._shown.is_certain:
            return None
        seconds = stalled or self.stall_times()[0] or 0.0
        hang = explain_hang(seconds, self.observe_hang(ranks, wait), self._stall.limit)
        if stalled is None:
            self._shown.confirm(hang.culprit)
            return hang if self._shown.is_certain else None
        if hang.may_end and stalled < self._long_timeout:  # the stacks have shown what no recorder did
            self._stall.min_timeout = self._long_timeout
            return None
        return hang

    def stalled(self, ranks: Ranks) -> float | None:
        """Sample the running ranks if that is due. Seconds without progress where that is too long, else None."""
        self.stall_changed = False
        late = -self.due_in()
        if late < 0:
            return None
        if late > _SUSPENDED:
            self._stall.discount(late)
        running = [rank for rank in ranks if rank.ended_at is None and not rank.finished]
        now = time.monotonic()
        world = {
            rank.rank: probe(rank.rank, rank.pid, self._dir.rank(rank.rank), alone=self._is_alone) for rank in running
        }
        self._find_stragglers(world)
        world = self._latest = {rank: _with_known(sample, self._latest.get(rank)) for rank, sample in world.items()}
        for rank, sample in world.items():
            self._phases[rank].append(sample.phase)
        self._find_dead_loops(running, world)
        self._next_sample = time.monotonic() + INTERVAL
        stalled = self._stall.stalled(now, list(world.values())) if world else None
        self._save_pace(now)
        self._notice(now, ranks)
        if stalled is not None and not has_free_space(self._dir.root):  # then no rank can report its progress
            self._stall.discount(stalled)
            return None
        return stalled

    def _notice(self, now: float, ranks: Ranks) -> None:
        """Update the stall that is shown."""
        if not self._latest or not self._stall.is_noticeable(now):
            self.stall_changed = self._shown.end()
        elif self._shown.is_due():
            seen = self.observe_stall(ranks)
            culprit = find_culprit(seen.running, seen.finished)
            if culprit.may_end or culprit.rank is not None:
                self._stall.min_timeout = self._long_timeout if culprit.may_end else 0.0
            self.stall_changed = self._shown.show(culprit, *self._stall.times(now))

    @property
    def stall(self) -> Stall | None:
        """The lack of progress that is shown."""
        return self._shown.stall

    def stall_times(self) -> tuple[float | None, float]:
        """Seconds without progress, None where that is not shown, and seconds until it counts as a hang."""
        seconds, left = self._stall.times(time.monotonic())
        return None if self.stall is None else seconds, left

    def observe_stall(self, ranks: Ranks) -> WorldObservation:
        """Positions of the ranks by the latest sample. Nothing is sent to them: a signal would end a sleep in C."""
        seen, _ = self._observe([rank for rank in ranks if rank.rank in self._latest], self._latest, None)
        return WorldObservation([], seen, self._finished(ranks))

    def take_activity(self) -> Activity:
        """What the ranks do by the latest sample, and what they did most of the time since the last call."""
        waits = self._waits.take()
        ranks = {
            rank: RankActivity(most_common_phase(self._phases[rank] or [sample.phase]), sample.step, waits.get(rank))
            for rank, sample in self._latest.items()
        }
        self._phases.clear()
        now = time.monotonic()
        return Activity(ranks, self._stall.timeout(now), self._stall.without_progress(now))

    def take_straggler_events(self) -> list[StragglerEvent]:
        """Take the events since the last call."""
        taken, self._straggler_events = self._straggler_events, []
        return taken

    @property
    def works(self) -> bool:
        """True once ranks have finished a step or called a collective, by the latest sample."""
        return any(sample.step or sample.total_collectives for sample in self._latest.values())

    @property
    def is_stopped(self) -> bool:
        """True where a rank is stopped by a signal, by the latest sample: it holds up all others, wherever they are."""
        return any(sample.state == "T" for sample in self._latest.values())

    def discount(self, seconds: float) -> None:
        """Do not count ``seconds`` in which ranks could not reach each other."""
        self._stall.discount(seconds)

    def find_missing_peer(self, ranks: Ranks, wait: Callable[[float], None]) -> Culprit | None:
        """Find why ranks have lost their connections though none has failed by itself; None where nothing shows it."""
        seen = self.observe_failure(ranks, wait)
        return find_missing_peer(seen.failed, seen.running, seen.finished)

    def observe_failure(self, ranks: Ranks, wait: Callable[[float], None]) -> WorldObservation:
        """Positions of the ranks now that one has failed; one that ends while its stacks are awaited is not running."""
        running = [rank for rank in ranks if rank.ended_at is None and not rank.finished and rank.error is None]
        world = {rank.rank: probe(rank.rank, rank.pid, self._dir.rank(rank.rank)) for rank in running}
        observed, _ = self._observe(running, world, wait)
        failed = [self._failed(rank) for rank in ranks if rank.failed]
        ended = {rank.rank for rank in ranks if rank.failed or rank.finished}
        still_running = [each for each in observed if each.sample.rank not in ended]
        return WorldObservation(failed, still_running, self._finished(ranks))

    def observe_hang(self, ranks: Ranks, wait: Callable[[float], None]) -> WorldObservation:
        """Positions of the ranks in a hang, by the latest sample."""
        world = self._latest
        observed, dumps = self._observe([rank for rank in ranks if rank.rank in world], world, wait)
        stacks = {str(rank): dump[-_MAX_STACK:] for rank, dump in dumps.items()}
        timeout = self._stall.timeout(time.monotonic())
        return WorldObservation([], observed, self._finished(ranks), stacks, timeout)

    def is_aborted_by_gloo(self, rank: RankResult) -> bool:
        """True where a thread of gloo ended a rank by SIGABRT, for a message of another size than requested."""
        return rank.signal == signal.SIGABRT and _GLOO_ABORT in read_end(self._dir.rank(rank.rank).log("stderr"))

    def _failed(self, rank: RankResult) -> RankObservation:
        directory, error, frames = self._dir.rank(rank.rank), rank.error, list[Frame]()
        position = None if error is None or error.file is None else Frame(error.file, error.line or 0, "")
        aborted, timed_out = self.is_aborted_by_gloo(rank), has_timed_out(rank)
        if aborted or (timed_out and error is None):  # faulthandler has left the stacks there
            frames = main_stack(read_end(directory.log("stderr")))
            position = position_in_code(frames, self._code)
        history = parse_history(read_text_from(directory.collectives, 0).encode())
        sample = RankSample(rank.rank, None, None, 0, 0.0, None, None)
        return RankObservation(sample, frames, position, history, aborted, waits=timed_out)

    def _finished(self, ranks: Ranks) -> list[FinishedRank]:
        return [self._as_finished(rank.rank) for rank in ranks if rank.finished]

    def _as_finished(self, rank: int) -> FinishedRank:
        if (done := read_record(self._dir.rank(rank).done, RankDone)) is not None:
            return FinishedRank(rank, done.step, done.file, done.line)
        status = read_record(self._dir.rank(rank).status, RankStatus)
        return FinishedRank(rank, None if status is None else status.step, is_marked=False)

    def _save_pace(self, now: float) -> None:
        """Save the pace now and then: a keeper that is killed loses little, and a disk that is full loses all."""
        if now - self._pace_saved_at >= _PACE_INTERVAL:
            self.save_pace()

    def save_pace(self) -> None:
        self._pace_saved_at = time.monotonic()
        if self._stall.pace == self._stall.before or not self._saves_pace:
            return
        with suppress(OSError):
            write_json(self._pace, self._stall.pace.to_json(), durable=False)

    def _find_dead_loops(self, running: list[RankResult], world: dict[int, RankSample]) -> None:
        """Mark in ``world`` the ranks that are in an endless loop."""
        for rank in running:
            sample = world[rank.rank]
            on_gpu = sample.device == "cuda"
            busy = sample.state == "R" and not sample.in_collective and not (on_gpu and self._is_alone)
            if not busy or self._stall.moves(sample):
                self._dead_loops.forget(rank.rank)
                continue
            before = main_thread_events(rank.pid)
            frames = main_stack(self._traceback(rank.rank))
            waits = on_gpu and bool(frames) and waits_for_gpu(frames, _source_line(frames[0]))
            if on_gpu and frames and not waits:
                self._dead_loops.forget(rank.rank)
                continue
            busy_sample = BusySample(sample.step, frames, before, main_thread_events(rank.pid), waits)
            if self._dead_loops.add(rank.rank, busy_sample):
                world[rank.rank] = replace(sample, in_dead_loop=True)

    def _find_stragglers(self, world: dict[int, RankSample]) -> None:
        """Find stragglers where every rank's collectives are known; query the ranks that seem to lag once more."""
        before = {rank: sample.collectives for rank, sample in world.items() if sample.collectives is not None}
        if len(before) < len(world) or len(world) < 2:
            return
        highest = max(before.values())
        again = {
            rank: last_collective(self._dir.rank(rank), on_gpu=world[rank].device == "cuda")
            for rank, last in before.items()
            if last < highest
        }
        after = {rank: last for rank, last in again.items() if last is not None}
        sample = CollectiveSample(before, lagging_ranks(before, after))
        self._waits.add(sample)
        self._straggler_events += self._stragglers.add(sample)

    def _observe(
        self, running: list[RankResult], world: dict[int, RankSample], wait: Callable[[float], None] | None
    ) -> tuple[list[RankObservation], dict[int, str]]:
        """Observe the ranks, then their stacks, by rank: the signal that requests them ends a sleep in C.

        Without ``wait`` there is no signal: torch's debug server is asked, which does not answer for every rank.
        """
        histories = {
            rank: collective_history(self._dir.rank(rank), on_gpu=sample.device == "cuda")
            for rank, sample in world.items()
        }
        calls = {rank.rank: kernel_call(rank.pid) for rank in running}
        if wait is None:
            answering = {rank for rank, history in histories.items() if history is not None}
            dumps = {rank: self._traceback(rank) if rank in answering else "" for rank in world}
        else:
            dumps = self._stacks(running, wait)
        frames = {rank: main_stack(dump) for rank, dump in dumps.items()}
        observed = [
            RankObservation(
                sample,
                frames[rank],
                position_in_code(frames[rank], self._code),
                histories[rank] or [],
                waits=sample.device == "cuda" and sample.in_collective,
                answers=histories[rank] is not None,
                kernel_call=calls[rank],
                exceptions="" if histories[rank] is None else rank_exceptions(self._dir.rank(rank)),
            )
            for rank, sample in world.items()
        ]
        return observed, dumps

    def _traceback(self, rank: int) -> str:
        """Stacks of a rank by torch's debug server; empty where it does not answer."""
        return (query(self._dir.rank(rank), "dump_traceback") or b"").decode(errors="replace")

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


def explain_hang(stalled: float, world: WorldObservation, limit: float | None) -> Hang:
    """Find out why ranks made no progress for ``stalled`` seconds; ``limit`` is the user's own timeout."""
    samples, culprit = [rank.sample for rank in world.running], find_culprit(world.running, world.finished)
    evidence = {
        "seconds_without_progress": round(stalled, 1),
        "timeout_seconds": round(world.timeout, 1),
        "collectives": {str(sample.rank): sample.collectives for sample in samples},
        "process_states": {str(sample.rank): sample.state for sample in samples},
        "stacks": world.stacks,
        "may_end": culprit.may_end and limit is None,
    }
    return Hang(stalled, culprit, evidence)


def _source_line(frame: Frame) -> str:
    lines = read_text_from(Path(frame.file), 0).splitlines()
    return lines[frame.line - 1] if 0 < frame.line <= len(lines) else ""


def _with_known(sample: RankSample, before: RankSample | None) -> RankSample:
    """Fill in what a recorder answered last, where it did not answer in time, as on a busy machine."""
    if sample.collectives is not None or before is None:
        return sample
    return replace(
        sample,
        collectives=before.collectives,
        total_collectives=before.total_collectives,
        in_collective=before.in_collective,
        is_blind=before.is_blind,
    )
