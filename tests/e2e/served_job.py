"""One job of a real server: who belongs to it, how far it is, and what it left behind."""

import os
import re
import signal
from pathlib import Path

from e2e.waiting import until
from rekindle.contract.locks import lock_holder
from rekindle.contract.processes import ProcessIdentity, parent_of
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.client import Client
from run_files import RunFiles

_LONG = 180.0  # seconds


class ServedJob(RunFiles):
    """Reads the run directory, so that it can look while the server is dead.

    Submits ``body``, unless that has been done: then ``job_id`` is the job's.
    """

    def __init__(self, client: Client, home: Path, body: dict[str, object], job_id: str | None = None) -> None:
        self._client = client
        self.id = job_id or client.submit(body)["id"]
        self._ranks = range(int(str(body["ranks"])))
        self.run_dir = RunDir(home / "runs" / self.id)

    # --- what is

    attempt = RunFiles.latest_attempt

    def state(self) -> str:
        return self._client.job(self.id)["state"]

    def pids(self) -> dict[int, int]:
        statuses = [self.status(rank) for rank in self._ranks]
        return {status.rank: status.pid for status in statuses if status is not None}

    def orphans(self) -> list[int]:
        """Processes of this job that no live keeper has below itself."""
        keeper = lock_holder(self.run_dir.keeper_lock)
        return [pid for pid in self.processes() if keeper not in _line_of(pid)]

    def weights(self) -> str:
        """The digest that the script prints at its end."""
        log = self.run_dir.attempt(self.attempt()).rank(0).log("stdout").read_text()
        return re.findall(r"weights sha256 ([0-9a-f]{64})", log)[-1]

    # --- what is done to it

    def kill_rank(self, rank: int) -> None:
        os.kill(self.pids()[rank], signal.SIGKILL)

    def stop_rank(self, rank: int) -> None:
        os.kill(self.pids()[rank], signal.SIGSTOP)

    def kill_agent(self) -> None:
        os.kill(parent_of(self.pids()[0]), signal.SIGKILL)

    def keeper(self) -> ProcessIdentity:
        pid = lock_holder(self.run_dir.keeper_lock)
        assert pid is not None, "the keeper holds its lock"
        identity = ProcessIdentity.of(pid)
        assert identity is not None
        return identity

    def kill_keeper(self) -> None:
        os.kill(self.keeper().pid, signal.SIGKILL)

    # --- what is awaited

    def reach(self, *, attempt: int = 1, beyond: int = 0) -> None:
        """Every rank of ``attempt`` or a later one runs, and a step later than ``beyond`` is finished."""
        until(
            lambda: self.attempt() >= attempt and len(self.pids()) == len(self._ranks) and self.step() > beyond,
            f"attempt {attempt} of job {self.id} is beyond step {beyond}",
            _LONG,
        )

    def reach_snapshot(self) -> int:
        """A snapshot is durable; its step."""
        directories = self.run_dir.snapshots
        return until(
            lambda: max((int(path.name) for path in directories.glob("[0-9]*")), default=0),
            f"job {self.id} has a snapshot",
            _LONG,
        )

    def finish(self, patience: float = _LONG) -> str:
        """The state in which it ended, when all its processes are gone."""
        until(lambda: self.state() in ("succeeded", "failed", "cancelled"), f"job {self.id} has ended", patience)
        until(lambda: not self.processes(), f"no process of job {self.id} is left", 5)
        return self.state()


def _line_of(pid: int) -> list[int]:
    """``pid`` and those that it descends from."""
    line = [pid]
    while line[-1] > 1 and (parent := parent_of(line[-1])) is not None:
        line.append(parent)
    return line
