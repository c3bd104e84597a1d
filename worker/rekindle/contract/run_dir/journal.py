"""The keeper's journal: appended, fsynced, never rewritten.

The server copies it into rows and can rebuild them from it.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from rekindle.contract.files import append_line, read_lines
from rekindle.contract.run_dir.json_records import with_current_names


class RecordType(StrEnum):
    """The kinds of record, with the fields each has beside ``type`` and ``at`` (seconds since the epoch)."""

    KEEPER_STARTED = "keeper_started"  # run, keeper: ProcessIdentity
    REWOUND = "rewound"  # run, step: the snapshot that a user chose, set_aside: steps of the newer ones
    ATTEMPT_STARTED = "attempt_started"  # attempt, run, generation, world_size, devices, warm
    RANKS_RUNNING = "ranks_running"  # attempt, ranks: [{rank, local_rank, pid, start_time}]
    SNAPSHOT_SKIPPED = "snapshot_skipped"  # attempt, step, reason: a damaged one was passed over
    RESUMED = "resumed"  # attempt, step: the snapshot that the attempt went on from
    RANK_EXITED = "rank_exited"  # attempt, rank, exit_code, signal ("SIGKILL"), killed: whether the keeper did it
    ATTEMPT_ENDED = "attempt_ended"  # attempt, outcome, resumed_from_step, last_step, durable_step, saving_seconds
    STRAGGLER = "straggler"  # attempt, rank, share: of the time that others wait for it, null once they no longer do
    FAULT_INJECTED = "fault_injected"  # attempt, fault, rank, snapshot (step of the damaged one): on a user's request
    RETRY_DECIDED = "retry_decided"  # attempt, reason, delay (seconds), next_try_at (seconds since the epoch)
    JOB_ENDED = "job_ended"  # run, state: succeeded | failed | cancelled | queued (drained), reason, outcome


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a journal; ``end`` is the byte offset behind it."""

    type: RecordType
    at: float
    fields: dict[str, Any]
    end: int


class Journal:
    """Writer's end; only the live keeper holds one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, record_type: RecordType, *, at: float | None = None, **fields: Any) -> None:
        """``at``: when it happened, in seconds since the epoch; now, by default. Raises OSError without room for it."""
        append_line(self._path, {"type": record_type, "at": time.time() if at is None else at, **fields})


def read_journal(path: Path, offset: int = 0) -> Iterator[Record]:
    """Every whole record from byte ``offset`` on; lines left unreadable by a crash are passed over."""
    for end, line in read_lines(path, offset):
        try:
            record_type, at = RecordType(line.pop("type")), float(line.pop("at"))
        except (KeyError, ValueError, TypeError):
            continue
        yield Record(record_type, at, with_current_names(line), end)
