"""The keeper's part of ``rekindle chaos``: does the damage that a user asked for, and says so in the journal first."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from rekindle.contract.chaos import CHAOS_SIGNAL, RANK_FAULTS, SELF_INFLICTED, Fault
from rekindle.contract.files import atomic_write
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.paths import AttemptDir, RunDir
from rekindle.keeper.facts import RankFacts
from rekindle.keeper.patient_journal import PatientJournal
from rekindle.keeper.roster import Roster, send

_SIGNALS = {Fault.KILL: signal.SIGKILL, Fault.STOP: signal.SIGSTOP, Fault.CRASH: signal.SIGSEGV}


class Injector:
    """One per attempt."""

    def __init__(self, run_dir: RunDir, attempt_dir: AttemptDir, journal: PatientJournal) -> None:
        self._run_dir, self._dir, self._journal = run_dir, attempt_dir, journal

    def inject(self, message: dict[str, Any], roster: Roster, agent: int) -> None:
        """Do what a chaos message asks; nothing where it asks nonsense."""
        number, fault = message.get("rank"), message.get("fault")
        rank = roster.ranks.get(number) if isinstance(number, int) else None
        if fault not in set(Fault) or (fault in RANK_FAULTS and rank is None):
            return
        victim = newest_snapshot(self._run_dir.snapshots) if fault == Fault.CORRUPT_SNAPSHOT else None
        if fault == Fault.CORRUPT_SNAPSHOT and victim is None:
            return
        self._journal.note(
            RecordType.FAULT_INJECTED,
            attempt=message["attempt"],
            fault=fault,
            rank=None if rank is None else rank.rank,
            snapshot=None if victim is None else int(victim.name),
        )
        if rank is not None and fault in RANK_FAULTS:
            self._hurt(rank, Fault(fault))
        elif fault == Fault.AGENT:
            os.kill(agent, signal.SIGKILL)
        elif fault == Fault.KEEPER:
            os.kill(os.getpid(), signal.SIGKILL)
        elif victim is not None:
            corrupt(victim)

    def _hurt(self, rank: RankFacts, fault: Fault) -> None:
        if fault in SELF_INFLICTED:
            atomic_write(self._dir.rank(rank.rank).chaos, fault.encode(), durable=False)
            send(rank, CHAOS_SIGNAL)
        else:
            send(rank, _SIGNALS[fault])


def newest_snapshot(snapshots: Path) -> Path | None:
    """The folder of the newest committed snapshot."""
    folders = (path.parent for path in snapshots.glob("*/manifest.json"))
    return max((folder for folder in folders if folder.name.isdecimal()), default=None)


def corrupt(snapshot: Path) -> None:
    """Flip one bit in the middle of its largest file; nothing where it has just given way to a newer one."""
    with suppress(OSError):
        victim = max((path for path in snapshot.iterdir() if path.is_file()), key=lambda path: path.stat().st_size)
        with victim.open("r+b") as file:
            file.seek(victim.stat().st_size // 2)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1]))
