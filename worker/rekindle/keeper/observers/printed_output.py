"""Metrics and progress of an attempt by what its ranks print, copied while they run to where the page reads metrics.

Ranks write their logs themselves, so a reader slows none of them. It looks at the latest bytes of a log every two
seconds, and at a sample of their lines where there are many; it takes at most half a per cent of a core. Rank 0 counts
first; of what it does not print, the lowest rank that prints it.
"""

import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rekindle.contract.run_dir.paths import STREAMS, AttemptDir
from rekindle.contract.run_dir.rank_records import MetricPoint
from rekindle.contract.safe_open import open_regular, regular_size
from rekindle.keeper.observers.planned_length import UNKNOWN_LENGTH, PlannedLength
from rekindle.keeper.observers.printed_lines import LineReader
from rekindle.keeper.observers.printed_series import LogPlace, PrintedPoint, PrintedSeries
from rekindle.training.reporter import MetricLog

INTERVAL = 2.0  # seconds
MAX_BYTES = 128 << 10  # of a log that one call reads: where there is more, the latest count
MAX_LINES = 60  # that one call reads closely, of all logs
LAST_MAX_LINES = 5_000  # when the ranks have gone: the next attempt waits for it
_REST_FACTOR = 200  # times as long as a call has computed passes before the next one
_OTHER_RANKS = 2  # looked at by a call, in turn, besides rank 0 and those that have printed metrics
_MAX_FILE = 32 << 20  # bytes of the copy. When it has more, nothing is added
_ALL_POINTS = 1_000  # of a form of lines; later points come the more rarely the longer the attempt runs
_LINE = re.compile(rb"[^\r\n]+")
_VARYING = b"0123456789 .+-"


@dataclass(slots=True)
class _Log:
    """A log that is read, up to ``offset``."""

    rank: int
    stream: str
    path: Path
    offset: int = 0
    reader: LineReader = field(default_factory=LineReader)


@dataclass(slots=True)
class _Owner:
    """The rank whose lines count for a metric."""

    rank: int
    after: int = -1  # its points count from this step on: those before are another rank's
    latest: int = -1


@dataclass(slots=True)
class _Written:
    """Points of one form of lines in the copy."""

    count: int = 0
    at: float = 0.0  # seconds since the epoch
    finite: bool = True
    held: MetricPoint | None = None  # the latest, where it was not written
    place: LogPlace | None = None


class PrintedOutput:
    """Reads the output of one attempt. ``step`` and ``epoch`` are None while nothing is known."""

    def __init__(
        self,
        attempt_dir: AttemptDir,
        ranks: Collection[int],
        planned: PlannedLength = UNKNOWN_LENGTH,
        *,
        copies: bool = True,
    ) -> None:
        """``copies``: metrics are copied to ``attempt_dir.printed``; else only the progress is read."""
        self._path, self._log = attempt_dir.printed, MetricLog(attempt_dir.printed)
        self._ranks, self._planned, self._copies = sorted(ranks), planned, copies
        self._logs = {
            rank: [_Log(rank, stream, attempt_dir.rank(rank).log(stream)) for stream in STREAMS] for rank in self._ranks
        }
        self._series: dict[int, PrintedSeries] = {}
        self._owners: dict[str, _Owner] = {}  # by metric
        self._written: dict[tuple[str, ...], _Written] = defaultdict(_Written)
        self._turn = 0  # of the other ranks
        self._started_at = time.time()
        self._next_read = 0.0  # seconds of CLOCK_MONOTONIC

    @property
    def step(self) -> int | None:
        return next((each.step for each in self._by_rank() if each.step is not None), None)

    @property
    def epoch(self) -> int | None:
        return next((each.epoch for each in self._by_rank() if each.epoch is not None), None)

    @property
    def progress(self) -> float | None:
        """The part of the training that is done, 0 to 1."""
        return next((share for each in self._by_rank() if (share := each.progress()) is not None), None)

    @property
    def seconds_left(self) -> float | None:
        now = time.monotonic()
        return next((left for each in self._by_rank() if (left := each.seconds_left(now)) is not None), None)

    def read_if_due(self) -> None:
        now = time.monotonic()
        if now >= self._next_read:
            begun = time.thread_time()
            self.read()
            self._next_read = now + max(INTERVAL, _REST_FACTOR * (time.thread_time() - begun))

    def read(self, *, ended: bool = False) -> None:
        """Read what is new in the logs; with ``ended`` in those of all ranks, and last lines that have no end."""
        ranks = self._ranks if ended else self._due_ranks()
        grown = [log for rank in ranks for log in self._logs[rank] if regular_size(log.path) > log.offset]
        limit = (LAST_MAX_LINES if ended else MAX_LINES) // max(len(grown), 1)
        for log in grown:
            with suppress(OSError):
                self._read_log(log, limit, ended=ended)
        with suppress(OSError):  # what does not fit on a full disk is a gap in the curves
            self._copy(ended=ended)

    def complete(self) -> None:
        """Count the last step and epoch: the script is done."""
        for series in self._series.values():
            series.complete()

    def _by_rank(self) -> Iterator[PrintedSeries]:
        return (self._series[rank] for rank in sorted(self._series))

    def _due_ranks(self) -> list[int]:
        always = {*self._ranks[:1], *(owner.rank for owner in self._owners.values())}
        others = [rank for rank in self._ranks if rank not in always]
        turns = range(self._turn, self._turn + _OTHER_RANKS)
        chosen = {others[turn % len(others)] for turn in turns} if others else set()
        self._turn += _OTHER_RANKS
        return sorted(always | chosen)

    def _read_log(self, log: _Log, limit: int, *, ended: bool) -> None:
        size = regular_size(log.path)
        begin = max(log.offset, size - MAX_BYTES)
        with open_regular(log.path) as file:
            file.seek(begin)
            data = file.read(MAX_BYTES)
        whole = len(data) if ended else max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if begin > log.offset:  # the first line may be cut off
            log.reader.skip()
            data = b"\n" * (skipped := data.find(b"\n") + 1) + data[skipped:]
        log.offset = begin + (whole or (len(data) if begin > log.offset else 0))
        series = self._series.setdefault(log.rank, PrintedSeries(self._planned))
        for skipped_some, offset, line in sample_lines(data[:whole], limit):
            if skipped_some:
                log.reader.skip()
            if (read := log.reader.read(line.decode(errors="replace"))) is not None:
                series.add(read, LogPlace(log.rank, log.stream, begin + offset))

    def _copy(self, *, ended: bool) -> None:
        for rank in sorted(self._series):
            for point in self._series[rank].take():
                self._add(rank, point)
        if ended:
            for written in self._written.values():
                self._write(written)
        if self._copies and not (self._path.exists() and self._path.stat().st_size > _MAX_FILE):
            self._log.flush()

    def _add(self, rank: int, point: PrintedPoint) -> None:
        step = point.step
        if step is None:
            return
        for name in list(point.values):
            if not self._belongs_to(rank, name, step):
                del point.values[name]
        if not point.values or not self._copies:
            return
        written, now = self._written[tuple(sorted(point.values))], time.time()
        written.held = MetricPoint(step, point.epoch, now, point.values)
        written.place = point.place
        finite = None not in point.values.values()
        rare = now - written.at >= (now - self._started_at) / _ALL_POINTS
        if written.count < _ALL_POINTS or rare or finite != written.finite:
            written.finite = finite
            self._write(written)

    def _belongs_to(self, rank: int, name: str, step: int) -> bool:
        owner = self._owners.setdefault(name, _Owner(rank))
        if rank < owner.rank:
            owner = self._owners[name] = _Owner(rank, owner.latest, owner.latest)
        if rank > owner.rank or step <= owner.after:
            return False
        owner.latest = max(owner.latest, step)
        return True

    def _write(self, written: _Written) -> None:
        if written.held is not None and written.place is not None:
            place = written.place
            self._log.add(written.held, line=[place.rank, place.stream, place.offset])
            written.count, written.at, written.held = written.count + 1, written.held.at, None


def sample_lines(data: bytes, limit: int) -> Iterator[tuple[bool, int, bytes]]:
    """The lines of ``data`` with their offsets, and whether lines before were skipped.

    Of more than ``limit`` it takes some of each kind, by how they begin: a line that comes once in an epoch is not lost
    among those of its steps.
    """
    matches = list(_LINE.finditer(data))
    if len(matches) <= limit:
        yield from ((False, match.start(), match.group()) for match in matches)
        return
    kinds: dict[bytes, list[int]] = defaultdict(list)
    for number, match in enumerate(matches):
        kinds[data[match.start() : match.start() + 24].translate(None, _VARYING)].append(number)
    chosen = sorted(_evenly(list(kinds.values()), limit))
    for before, number in zip([-1, *chosen], chosen, strict=False):
        yield number != before + 1, matches[number].start(), matches[number].group()


def _evenly(kinds: Sequence[list[int]], limit: int) -> set[int]:
    """``limit`` numbers: the rarest kinds whole, as far as all have an equal share, and others evenly."""
    chosen: set[int] = set()
    for place, numbers in enumerate(sorted(kinds, key=len)):
        share = max((limit - len(chosen)) // (len(kinds) - place), 0)
        stride = max(-(-len(numbers) // share), 1) if share else len(numbers) + 1
        chosen.update(numbers[::-1][::stride])
    return set(sorted(chosen)[-limit:])
