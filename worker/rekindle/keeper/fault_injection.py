"""The keeper's part of ``rekindle chaos``: injects the fault that a user requested, and records it first."""

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

from rekindle.contract.chaos import CHAOS_SIGNAL, RANK_FAULTS, SELF_INFLICTED, Fault
from rekindle.contract.files import atomic_write
from rekindle.contract.run_dir.control import ControlMessage
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.snapshots import MANIFEST, SnapshotDir
from rekindle.keeper.buffered_journal import AttemptJournal
from rekindle.keeper.rank_processes.table import RankTable, send_signal

_SIGNALS = {Fault.KILL: signal.SIGKILL, Fault.STOP: signal.SIGSTOP, Fault.CRASH: signal.SIGSEGV}


def inject_fault(
    message: ControlMessage, run_dir: RunDir, attempt: int, ranks: RankTable, agent: int, journal: AttemptJournal
) -> None:
    """Do what a chaos message requests; nothing where its target does not exist."""
    fault = message.fault
    rank = ranks.ranks.get(message.rank) if message.rank is not None and fault in RANK_FAULTS else None
    snapshot = latest_snapshot(run_dir.snapshots) if fault is Fault.CORRUPT_SNAPSHOT else None
    if fault is None or (rank is None and snapshot is None and fault not in (Fault.AGENT, Fault.KEEPER)):
        return
    number, step = None if rank is None else rank.rank, None if snapshot is None else int(snapshot.name)
    journal.write_nowait(RecordType.FAULT_INJECTED, attempt=attempt, fault=fault, rank=number, snapshot=step)
    if snapshot is not None:
        corrupt(snapshot)
    elif rank is None:
        os.kill(agent if fault is Fault.AGENT else os.getpid(), signal.SIGKILL)
    elif fault in SELF_INFLICTED:
        atomic_write(run_dir.attempt(attempt).rank(rank.rank).chaos, fault.encode(), durable=False)
        send_signal(rank, CHAOS_SIGNAL)
    else:
        send_signal(rank, _SIGNALS[fault])


def latest_snapshot(snapshots: Path) -> Path | None:
    """The directory of the latest committed snapshot."""
    paths = map(SnapshotDir(snapshots).path, SnapshotDir(snapshots).steps())
    return next((path for path in paths if (path / MANIFEST).exists()), None)


def corrupt(snapshot: Path) -> None:
    """Flip one bit in the middle of its largest file; nothing where it has just been deleted for a later one.

    The file is replaced by a copy first: a job that continues this one may have a hard link to it.
    """
    with suppress(OSError):
        target = max((path for path in snapshot.iterdir() if path.is_file()), key=lambda path: path.stat().st_size)
        copy = target.with_name(f".{target.name}.corrupt")
        shutil.copyfile(target, copy)
        copy.replace(target)
        with target.open("r+b") as file:
            file.seek(target.stat().st_size // 2)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1]))
