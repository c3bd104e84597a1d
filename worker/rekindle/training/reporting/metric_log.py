"""``metrics.jsonl``: buffered in memory, appended in whole lines a few times a second."""

import json
import math
import os
from pathlib import Path

from rekindle.contract.run_dir.rank_records import MetricPoint


class MetricLog:
    """Appends to ``path``; nothing is on disk before ``flush``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[bytes] = []

    def add(self, point: MetricPoint) -> None:
        """Numbers that are not finite become null, since JSON has no NaN."""
        value = point.to_json()
        value["values"] = {
            name: item if item is not None and math.isfinite(item) else None for name, item in point.values.items()
        }
        self._lines.append(json.dumps(value, allow_nan=False).encode() + b"\n")

    def flush(self) -> None:
        """Append the buffer. Raises OSError where it does not fit; those points are lost, not the next ones."""
        lines, self._lines = self._lines, []
        if not lines:
            return
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(b"".join(lines))
