"""The logs of an attempt while they grow: when their bytes came, and how much space they take.

Ranks write to their logs by themselves, also from C libraries and child processes, so nothing can stand between them
and the file: their keeper notes how the files grow. Where a log is too large, the part between its beginning and its
end is freed: the file keeps its length and every byte its offset; what is freed reads as a hole.
"""

import json
import os
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from rekindle.contract.files import HOLE_BLOCK, append_line, atomic_write, punch_hole, read_lines
from rekindle.contract.run_dir.attempt_samples import LogName, LogSizes, valid_sizes
from rekindle.contract.run_dir.paths import STREAMS, AttemptDir
from rekindle.contract.safe_open import regular_size

TIMES_INTERVAL = 0.25  # seconds
MAX_TIMES_BYTES = 4 << 20  # of the record. When it has more, lines of its older half are merged: the older, the coarser
LIMIT_INTERVAL = 1.0  # seconds
_FIRST_SHARE = 8  # of the limit, for the beginning: where a script prints what it was started with
_STEP_SHARE = 16  # of the limit, by which a log may exceed it before more is freed
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LogTimesWriter:
    """Records when the logs of an attempt's ranks on one machine grew. No fsync: it means nothing to a resume."""

    def __init__(self, attempt_dir: AttemptDir, ranks: Iterable[int], node: int | None = None) -> None:
        """``ranks``: the ranks of this machine; ``node``: its number in a cluster."""
        self._path = attempt_dir.log_times_of(node)
        names = [LogName(rank, stream) for rank in ranks for stream in STREAMS]
        self._logs = {name: attempt_dir.rank(name.rank).log(name.stream) for name in names}
        self._known: dict[LogName, int] = {}  # bytes
        self._next = 0.0  # seconds of CLOCK_MONOTONIC

    def record_if_due(self) -> None:
        """Call it at least every ``TIMES_INTERVAL`` seconds."""
        if time.monotonic() >= self._next:
            self.record()
            self._next = time.monotonic() + TIMES_INTERVAL

    def record(self) -> None:
        """Note which logs have grown. What cannot be written (a full disk) is noted by the next record."""
        sizes = {name: regular_size(path) for name, path in self._logs.items()}
        grown = {name: size for name, size in sizes.items() if size > self._known.get(name, 0)}
        if not grown:
            return
        with suppress(OSError):
            append_line(self._path, LogSizes(time.time(), grown).to_json(), durable=False)
            self._known |= grown
            self._merge_if_large()

    def _merge_if_large(self) -> None:
        size = self._path.stat().st_size
        if size <= MAX_TIMES_BYTES:
            return
        records = (
            list(valid_sizes(read_lines(self._path))) if size <= 2 * MAX_TIMES_BYTES else []
        )  # else not the keeper's
        older, newer = records[: len(records) // 2], records[len(records) // 2 :]
        lines = [json.dumps(record.to_json(), separators=(",", ":")) for record in [*_halved(older), *newer]]
        atomic_write(self._path, "\n".join([*lines, ""]).encode(), durable=False)


def _halved(records: list[LogSizes]) -> list[LogSizes]:
    """Merge the ``records`` that are closest in time, until half of the sizes are left."""
    seconds, most = 2 * TIMES_INTERVAL, sum(len(record.sizes) for record in records) // 2
    merged = merge(records, seconds)
    while len(merged) > 1 and sum(len(record.sizes) for record in merged) > most:
        seconds *= 2
        merged = merge(records, seconds)
    return merged


def merge(records: Iterable[LogSizes], seconds: float) -> list[LogSizes]:
    """Merge what came within ``seconds`` into one record, with the time of the last of them."""
    merged: list[LogSizes] = []
    began = float("-inf")
    for record in records:
        if merged and 0 <= record.at - began < seconds:
            merged[-1] = LogSizes(record.at, {**merged[-1].sizes, **record.sizes})
        else:
            merged.append(record)
            began = record.at
    return merged


class LogLimit:
    """Limits the logs of one attempt. A log that cannot be shortened stays, such as one that is no regular file."""

    def __init__(self, limit: int | None, logs: Callable[[], Iterable[Path]]) -> None:
        """``limit``: bytes that each of ``logs`` may take, None for any number."""
        self._limit, self._logs = limit, logs
        self._freed: dict[Path, int] = {}  # where the hole ends
        self._next = 0.0  # seconds of CLOCK_MONOTONIC

    def apply_if_due(self) -> None:
        if time.monotonic() >= self._next:
            self.apply()
            self._next = time.monotonic() + LIMIT_INTERVAL

    def apply(self) -> None:
        """Free the bytes above the limit."""
        if self._limit is not None:
            for log in self._logs():
                with suppress(OSError):
                    self._shorten(log, self._limit)

    def _shorten(self, log: Path, limit: int) -> None:
        first = _round_up(limit // _FIRST_SHARE)
        begin = max(first, self._freed.get(log, 0))
        if log.lstat().st_size - begin <= limit - first + limit // _STEP_SHARE:
            return
        fd = os.open(log, _OPEN)
        try:
            status = os.fstat(fd)
            end = (status.st_size - (limit - first)) // HOLE_BLOCK * HOLE_BLOCK
            if stat.S_ISREG(status.st_mode) and end > begin:
                punch_hole(fd, begin, end)
                self._freed[log] = end
        finally:
            os.close(fd)


def _round_up(size: int) -> int:
    return -(-size // HOLE_BLOCK) * HOLE_BLOCK
