"""What the ranks of all nodes use, in one file: a line has the latest sample of every node."""

import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rekindle.contract.run_dir.usage import UsageSample
from rekindle.keeper.observers.usage import INTERVAL, append_sample

_MAX_AGE = 3 * INTERVAL  # seconds, after which a sample says nothing about now


class ClusterUsage:
    """One per attempt, written by the leading keeper only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._latest: dict[int, tuple[float, UsageSample]] = {}  # by node; with seconds of CLOCK_MONOTONIC
        self._written_at = 0.0

    def add(self, node: int, sample: UsageSample, nodes: Collection[int]) -> None:
        """Of ``node``; ``nodes`` are those from which samples are to be expected."""
        now = time.monotonic()
        self._latest[node] = now, sample
        if all(self._latest.get(each, (0.0,))[0] > self._written_at for each in nodes):
            self._written_at = now
            with suppress(OSError):
                append_sample(self._path, self._combined(now))

    def _combined(self, now: float) -> UsageSample:
        """GPUs are counted over all nodes, as the ranks are; all nodes have equally many."""
        samples = {node: each for node, (at, each) in self._latest.items() if now - at < _MAX_AGE}
        per_node = max((device.index + 1 for each in samples.values() for device in each.devices), default=0)
        ranks = [rank for node in sorted(samples) for rank in samples[node].ranks]
        devices = [
            replace(device, index=node * per_node + device.index)
            for node in sorted(samples)
            for device in samples[node].devices
        ]
        timeouts = [each.hang_timeout for each in samples.values() if each.hang_timeout is not None]
        waits = [each.without_progress for each in samples.values() if each.without_progress is not None]
        return UsageSample(time.time(), ranks, devices, max(timeouts, default=None), min(waits, default=None))
