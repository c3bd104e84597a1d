"""What a job leaves in its run directory, and its live processes: however it was launched."""

from pathlib import Path

from rekindle.contract.environment import RUN_DIR
from rekindle.contract.files import read_json
from rekindle.contract.processes import ProcessIdentity
from rekindle.contract.run_dir.journal import Record, RecordType, read_journal
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.rank_records import RankStatus


class RunFiles:
    """Base of what has a ``run_dir``; reads its files at each call."""

    run_dir: RunDir

    def records(self, kind: RecordType) -> list[Record]:
        return [record for record in read_journal(self.run_dir.journal) if record.type is kind]

    def latest_attempt(self) -> int:
        return max((int(record.attempt) for record in self.records(RecordType.ATTEMPT_STARTED)), default=0)

    def status(self, rank: int) -> RankStatus | None:
        value = read_json(self.run_dir.attempt(self.latest_attempt()).rank(rank).status)
        return None if value is None else RankStatus.from_json(value)

    def step(self) -> int:
        status = self.status(0)
        return 0 if status is None else status.step or 0

    def classes(self) -> list[str]:
        """How the attempts ended."""
        return [str(record.outcome.klass) for record in self.records(RecordType.ATTEMPT_ENDED)]

    def processes(self) -> list[int]:
        """Every live process of this run, found by its environment."""
        found = [ProcessIdentity.of(pid) for pid in processes_with(f"{RUN_DIR}={self.run_dir.root}")]
        return [identity.pid for identity in found if identity is not None and identity.alive()]


def processes_with(variable: str, pids: list[int] | None = None) -> list[int]:
    """The processes among ``pids``, by default all of this machine, that have the variable ``NAME=value``."""
    if pids is None:
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [pid for pid in pids if variable.encode() in _environment(pid)]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
