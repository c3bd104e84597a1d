"""One run directory with a real keeper, its ranks, and the hand that hurts them."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e2e.waiting import until
from rekindle.contract.environment import RUN_DIR, clean_environment
from rekindle.contract.files import write_json
from rekindle.contract.job import HEALTHY_SECONDS, JobSpec, RunIntent
from rekindle.contract.job_options import TargetKind
from rekindle.contract.processes import ProcessIdentity, boot_id, parent_of
from rekindle.contract.run_dir.control_messages import ControlMessage, MessageType, notify
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.states import JobIntent
from run_files import RunFiles

if TYPE_CHECKING:
    from forked_keeper import StartedKeeper

SCRIPTS = Path(__file__).parent / "scripts"
_LONG = 120.0  # seconds


class FaultyRun(RunFiles):
    """Starts keepers as the server would, and reads what they leave."""

    def __init__(
        self,
        root: Path,
        script: str,
        *args: str,
        ranks: int = 2,
        healthy_seconds: float = HEALTHY_SECONDS,
        log_bytes: int | None = None,
        **spec: Any,
    ) -> None:
        """``script`` is copied from ``scripts`` as the job's ``train.py``; further files go to ``run_dir.code``."""
        self.run_dir = RunDir(root)
        for directory in (root, self.run_dir.code, self.run_dir.attempts):
            directory.mkdir(parents=True)
        shutil.copyfile(SCRIPTS / script, self.run_dir.code / "train.py")
        wanted = {"kind": TargetKind.SCRIPT, "target": "train.py", "warm": True, "device": "cpu", **spec}
        job = JobSpec(
            name="fault", python=sys.executable, min_ranks=ranks, max_ranks=ranks,
            args=list(args), **wanted,
        )  # fmt: skip
        self._devices, self._max_failures, self._healthy_seconds = job.max_devices, job.max_failures, healthy_seconds
        self._log_bytes = log_bytes
        write_json(self.run_dir.spec, job.to_json())
        self.want(JobIntent.RUN)
        self._warm = job.warm
        self._keepers: list[StartedKeeper] = []
        self.keeper: StartedKeeper

    # --- what is done

    def start(self, *, cold: bool = False, prefix: Sequence[str] = (), **environment: str) -> "StartedKeeper":
        """Start a keeper as the server does: in a session of its own, its log in the run directory.

        From a spare keeper, unless it must be ``cold``; then ``prefix`` is a program that starts it.
        """
        own = {**clean_environment(os.environ), "OMP_NUM_THREADS": "1", RUN_DIR: str(self.run_dir.root), **environment}
        with self.run_dir.keeper_log.open("ab") as log:
            forked = None if cold or not self._warm else _fork_keeper(self.run_dir, own, log.fileno())
            keeper: StartedKeeper = forked or subprocess.Popen(
                [*prefix, sys.executable, "-P", "-m", "rekindle.keeper", str(self.run_dir.root)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.run_dir.code, env=own,
                start_new_session=True,
            )  # fmt: skip
        self._keepers.append(keeper)
        self.keeper = keeper
        return keeper

    def want(self, want: JobIntent, run: int = 1, *, message: bool = True) -> None:
        """Request a state as the server does; without the ``message``, as a server that dies before it has sent it."""
        devices = [f"cpu:{index}" for index in range(self._devices)]
        intent = RunIntent(want, run, devices, self._max_failures, healthy_seconds=self._healthy_seconds)
        intent = replace(intent, log_bytes=self._log_bytes)
        write_json(self.run_dir.intent, intent.to_json())
        if message:
            notify(self.run_dir, ControlMessage(MessageType.INTENT))

    def signal_rank(self, rank: int, number: int = signal.SIGKILL) -> None:
        """Signal the rank's process, made sure to be itself."""
        assert self.rank_lives(rank)
        os.kill(self.pid(rank), number)

    def kill_agent(self) -> None:
        agent = parent_of(self.pid(0))
        assert agent not in (None, 1, self.keeper.pid)
        os.kill(agent, signal.SIGKILL)

    def kill_keeper(self) -> None:
        self.keeper.kill()
        self.keeper.wait()

    # --- what is

    attempt = property(RunFiles.latest_attempt)

    def pid(self, rank: int) -> int:
        status = self.status(rank)
        assert status is not None
        return status.pid

    def rank_lives(self, rank: int) -> bool:
        status = self.status(rank)
        return status is not None and ProcessIdentity(status.pid, status.start_time, boot_id()).alive()

    def log(self, rank: int, stream: str = "stdout", attempt: int | None = None) -> str:
        path = self.run_dir.attempt(attempt or self.attempt).rank(rank).log(stream)
        return path.read_text() if path.exists() else ""

    def outcomes(self) -> list[dict[str, Any]]:
        return [record.outcome.to_json() for record in self.records(RecordType.ATTEMPT_ENDED)]

    def steps(self, rank: int) -> list[list[int]]:
        """The steps that the rank printed, one list per attempt."""
        return [
            [int(step) for step in re.findall(r"^step (\d+)$", self.log(rank, attempt=number), re.MULTILINE)]
            for number in range(1, self.attempt + 1)
        ]

    def weights(self) -> str:
        return re.findall(r"^weights ([0-9a-f]{64})$", self.log(0), re.MULTILINE)[-1]

    # --- what is awaited

    def reach_step(self, step: int, *, attempt: int = 1, rank: int = 0) -> None:
        def reached() -> bool:
            lines = self.log(rank).splitlines() if self.attempt >= attempt else []
            return any(line.startswith("step ") and int(line[5:]) >= step for line in lines if line[5:].isdecimal())

        until(lambda: reached() or self._ended_early(), f"rank {rank} has done step {step} of attempt {attempt}", _LONG)
        assert reached(), self.all_logs()

    def reach_record(self, kind: RecordType, count: int = 1) -> None:
        until(lambda: len(self.records(kind)) >= count or self._ended_early(), f"{count} of {kind}", _LONG)
        assert len(self.records(kind)) >= count, self.all_logs()

    def finish(self) -> str:
        """The state that the one end of the job names, when its keeper has left and nothing is left running."""
        assert self.leave() == 0, self.all_logs()
        ends = self.records(RecordType.JOB_ENDED)
        assert len(ends) == 1, self.all_logs()
        return str(ends[0].state)

    def leave(self) -> int:
        """Exit code of the current keeper; nothing of the run is left then."""
        try:
            code = self.keeper.wait(_LONG)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the keeper does not end\n{self.all_logs()}") from None
        until(lambda: not self.processes(), "no process of the run is left", 5)
        return code

    def close(self) -> None:
        """End what is left of the run, and complain about it."""
        for keeper in self._keepers:
            if keeper.poll() is None:
                keeper.kill()
            keeper.wait()
        left = self.processes()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"left running: {left}\n{self.all_logs()}"

    def all_logs(self) -> str:
        """What happened, for a test that fails."""
        paths = [self.run_dir.journal, self.run_dir.keeper_log, *self.run_dir.attempts.glob("*/agent.log")]
        paths += self.run_dir.attempts.glob("*/ranks/*/stderr.log")
        return "\n".join(f"--- {path}\n{path.read_text()[-3000:]}" for path in paths if path.is_file())

    def _ended_early(self) -> bool:
        return self.keeper.poll() is not None


def _fork_keeper(run_dir: RunDir, environment: dict[str, str], log: int) -> "StartedKeeper | None":
    """Imported here: where there is nothing but torch, every keeper is started by itself."""
    from forked_keeper import fork_keeper

    return fork_keeper(run_dir, environment, log)
