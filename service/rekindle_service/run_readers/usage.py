"""What an attempt's ranks and GPUs use, as its keeper has recorded it."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rekindle.contract.files import json_lines
from rekindle.contract.run_dir.attempt_samples import UsageSample
from rekindle.contract.run_dir.json_records import structure
from rekindle_service.run_readers.logs import open_or_empty, size_of

_MAX_LINE = 256 * 1024  # bytes: thousands of ranks
_MAX_BYTES = 8 << 20  # of a file that the keeper holds at a fraction of it


def read_usage(root: Path, path: Path, begin: float = 0.0, end: float = math.inf) -> Iterator[UsageSample]:
    """Every sample of the file at ``path`` beneath ``root``, oldest first; lines that are no sample are skipped.

    Only those from ``begin`` to ``end``, in seconds since the epoch.
    """
    with open_or_empty(root, path) as file:
        yield from (sample for sample in _samples(file, 0) if begin <= sample.at <= end)


def latest_usage(root: Path, path: Path) -> UsageSample | None:
    """The last sample, read from the end, since it is needed several times a second."""
    with open_or_empty(root, path) as file:
        size = size_of(file)
        for window in (8 * 1024, _MAX_LINE):
            samples = list(_samples(file, max(0, size - window)))
            if samples or size <= window:
                break
    return samples[-1] if samples else None


def _samples(file: BinaryIO, offset: int) -> Iterator[UsageSample]:
    for end, line in json_lines(file, offset, max_line=_MAX_LINE):
        if end - offset > _MAX_BYTES:
            return
        try:
            yield structure(UsageSample, line)
        except ValueError:
            continue  # not the keeper's
