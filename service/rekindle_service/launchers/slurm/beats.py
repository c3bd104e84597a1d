"""Signs of life of leading keepers: a file that each replaces every few seconds, timed by this machine's own clock."""

import time
from dataclasses import dataclass

from rekindle.contract.files import read_json
from rekindle.contract.run_dir.paths import RunDir

_READ_INTERVAL = 1.0  # seconds between two reads of one file


@dataclass(slots=True)
class _Beat:
    """What the file of one launch had at the latest read. Times of time.monotonic()."""

    content: object
    written_at: float  # when it was seen to change; negative infinity where that was before the first read
    changed_at: float  # the same, or when ``restart`` was called
    read_at: float


class Beats:
    """One thread at a time may ask for one job."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], _Beat] = {}

    def changed_at(self, run_dir: RunDir, launch: int) -> float:
        """When the file was last seen to change, or first seen; it may have changed a second ago. Raises OSError."""
        return self._read(run_dir, launch).changed_at

    def written_at(self, run_dir: RunDir, launch: int) -> float:
        """When the keeper was last seen to write, or to have written; negative infinity before. Raises OSError."""
        return self._read(run_dir, launch).written_at

    def content(self, run_dir: RunDir, launch: int) -> object:
        """What the keeper has written there; None where there is nothing yet. Raises OSError."""
        return self._read(run_dir, launch).content

    def _read(self, run_dir: RunDir, launch: int) -> _Beat:
        now, key = time.monotonic(), (run_dir.job_id, launch)
        known = self._known.get(key)
        if known is not None and now - known.read_at < _READ_INTERVAL:
            return known
        content = read_json(run_dir.launch(launch).beat, root=run_dir.root, max_bytes=1 << 16)
        if known is None:
            written_at = float("-inf") if content is None else time.monotonic()  # at the latest
            known = self._known[key] = _Beat(content, written_at, time.monotonic(), now)
        elif content != known.content:
            known = self._known[key] = _Beat(content, time.monotonic(), time.monotonic(), now)
        known.read_at = now
        return known

    def restart(self, run_dir: RunDir, launch: int) -> None:
        """Count the silence from now: until now nothing could be expected of the keeper."""
        if (known := self._known.get((run_dir.job_id, launch))) is not None:
            known.changed_at = time.monotonic()

    def forget(self, job_ids: set[str]) -> None:
        """Of all other jobs."""
        for key in [each for each in list(self._known) if each[0] not in job_ids]:
            del self._known[key]
