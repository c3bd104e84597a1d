"""When each rank's output came: ranks write their logs by themselves, so their keeper notes how the files grow."""

import json
import time
from collections.abc import Iterable
from contextlib import suppress

from rekindle.contract.files import append_line, atomic_write, read_lines
from rekindle.contract.run_dir.log_times import LogName, LogSizes, valid_sizes
from rekindle.contract.run_dir.paths import STREAMS, AttemptDir
from rekindle.contract.safe_open import regular_size

INTERVAL = 0.25  # seconds
MAX_BYTES = 4 << 20  # of the record. When it has more, lines of its older half are merged: the older, the coarser


class LogTimes:
    """One per attempt and machine, written by its keeper only. No fsync: it means nothing to a resume."""

    def __init__(self, attempt_dir: AttemptDir, ranks: Iterable[int], node: int | None = None) -> None:
        """``ranks``: those of this machine; ``node``: its number in a cluster."""
        self._path = attempt_dir.log_times_of(node)
        names = [LogName(rank, stream) for rank in ranks for stream in STREAMS]
        self._logs = {name: attempt_dir.rank(name.rank).log(name.stream) for name in names}
        self._known: dict[LogName, int] = {}  # bytes
        self._next = 0.0  # seconds of CLOCK_MONOTONIC

    def record_if_due(self) -> None:
        """Call it at least every ``INTERVAL`` seconds."""
        if time.monotonic() >= self._next:
            self.record()
            self._next = time.monotonic() + INTERVAL

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
        if size <= MAX_BYTES:
            return
        records = list(valid_sizes(read_lines(self._path))) if size <= 2 * MAX_BYTES else []  # else not the keeper's
        older, newer = records[: len(records) // 2], records[len(records) // 2 :]
        lines = [json.dumps(record.to_json(), separators=(",", ":")) for record in [*_halved(older), *newer]]
        atomic_write(self._path, "\n".join([*lines, ""]).encode(), durable=False)


def _halved(records: list[LogSizes]) -> list[LogSizes]:
    """``records`` with at most half of their sizes, by merging those that are closest in time."""
    seconds, most = 2 * INTERVAL, sum(len(record.sizes) for record in records) // 2
    merged = merge(records, seconds)
    while len(merged) > 1 and sum(len(record.sizes) for record in merged) > most:
        seconds *= 2
        merged = merge(records, seconds)
    return merged


def merge(records: Iterable[LogSizes], seconds: float) -> list[LogSizes]:
    """What came within ``seconds`` as one record, with the time of the last of them."""
    merged: list[LogSizes] = []
    began = float("-inf")
    for record in records:
        if merged and 0 <= record.at - began < seconds:
            merged[-1] = LogSizes(record.at, {**merged[-1].sizes, **record.sizes})
        else:
            merged.append(record)
            began = record.at
    return merged
