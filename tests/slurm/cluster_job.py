"""One job on the cluster, submitted to a real server: where its ranks are, and what they have trained."""

import json
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from e2e.waiting import until
from plain_torchrun import lines
from rekindle.contract.environment import RUN_DIR
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.client import Client
from run_files import RunFiles, processes_with
from slurm.cluster import Cluster

SCRIPTS = Path(__file__).parent / "scripts"
PER_EPOCH = 7
_LONG = 60.0  # seconds
_ENDED = ("succeeded", "failed", "cancelled")
_OWN = {"OMP_NUM_THREADS": "1"}

Trained = dict[int, tuple[int, list[int], list[float]]]
"""Of each step its epoch, the ids of its samples, and the losses of the ranks."""


class ClusterJob(RunFiles):
    """Submits ``body`` at once; by default ``scripts/train.py`` on two nodes with a rank each."""

    def __init__(self, cluster: Cluster, client: Client, home: Path, out: Path, **body: Any) -> None:
        """``out``: an existing directory, for what the ranks write; ``epochs`` and ``pace`` go to the script."""
        self._cluster, self._client, self.out = cluster, client, out
        training = {"OUT": str(out), "EPOCHS": str(body.pop("epochs", 3)), "PACE": str(body.pop("pace", 0.4))}
        asked = {
            "name": "train", "script": "train.py", "code": {"path": str(SCRIPTS)}, "nodes": 2, "ranks": 2,
            "device": "cpu", "slurm": {"partition": "main"}, "env": {**_OWN, **training}, **body,
        }  # fmt: skip
        if {"recipe", "module"} & asked.keys():
            asked = {name: value for name, value in asked.items() if name not in ("script", "code")}
        self.id = str(client.submit(asked)["id"])
        self.run_dir = RunDir(home / "runs" / self.id)

    # --- what is

    attempt = property(RunFiles.latest_attempt)

    def shown(self) -> Mapping[str, Any]:
        """The job as the page has it."""
        return self._client.job(self.id)  # type: ignore[return-value]

    @property
    def state(self) -> str:
        return str(self.shown()["state"])

    @property
    def slurm_id(self) -> int:
        """Id of its Slurm job."""
        return int(until(lambda: (self.shown()["slurm"] or {}).get("job_id"), f"job {self.id} has a Slurm job"))

    def slurm_jobs(self) -> list[str]:
        """Id and state of all its Slurm jobs, in the order of their ids."""
        form = "--Format=JobID:20,State:20,Name:60"
        listed = [line.split() for line in self._cluster.run("squeue", "--noheader", "--states=all", form).splitlines()]
        return [f"{number} {state}" for number, state, name in sorted(listed) if self.id in name]

    def resumed(self) -> list[int]:
        return [record.step for record in self.records(RecordType.RESUMED)]

    def hosts(self, attempt: int | None = None) -> list[str]:
        """The nodes of an attempt, by their number in it."""
        number = attempt or self.attempt
        return next(list(each.hosts) for each in self.records(RecordType.ATTEMPT_STARTED) if each.attempt == number)

    @property
    def leader(self) -> str:
        """The node on which the coordinator is: that of the batch script."""
        found = self._cluster.run("squeue", "--noheader", f"--jobs={self.slurm_id}", "--format=%B").strip()
        assert found in self._cluster.nodes, found
        return found

    def snapshots(self) -> list[int]:
        return sorted(int(path.name) for path in self.run_dir.snapshots.glob("[0-9]*"))

    def processes(self, node: str | None = None) -> list[int]:
        """Pids on this machine of its live processes, keepers and ranks, on all nodes or one."""
        if node is None:
            return super().processes()
        return processes_with(f"{RUN_DIR}={self.run_dir.root}", list(self._cluster.host(node).processes().values()))

    def trained(self) -> Trained:
        """What counts of each step: an attempt that trained it again replaces what the one before had done."""
        steps: Trained = {}
        for number in range(1, self.attempt + 1):
            steps.update(trained_steps(self.out, number))
        return steps

    def digests(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.out.glob("digest-*.json"))]

    # --- what is done to it

    def signal_rank(self, rank: int, number: int = signal.SIGKILL) -> None:
        status = self.status(rank)
        assert status is not None
        self._cluster.host(str(status.host)).signal(status.pid, number)

    # --- what is awaited

    def reach(self, *, attempt: int = 1, beyond: int = 0) -> float:
        """``attempt`` or a later one has finished a step later than ``beyond``; how many seconds that took."""
        started = time.monotonic()
        self._await(
            lambda: (self.attempt >= attempt and self.step() > beyond) or self._ended_early(),
            f"attempt {attempt} is beyond step {beyond}",
        )
        return time.monotonic() - started

    def reach_snapshot(self) -> int:
        """A snapshot is durable; its step."""
        self._await(lambda: bool(self.snapshots()) or self._ended_early(), "it has a snapshot")
        return self.snapshots()[-1]

    def reach_state(self, *states: str) -> None:
        self._await(lambda: self.state in states, f"it is {' or '.join(states)}")

    def finish(self) -> str:
        """The state in which it ended, when all its processes are gone and Slurm has none of its jobs any more."""
        self._await(lambda: self.state in _ENDED, "it has ended")
        self._await(lambda: not self.processes(), "no process of it is left")
        return self.state

    def _await(self, condition: Callable[[], bool], sentence: str) -> None:
        try:
            until(condition, f"job {self.id}: {sentence}", _LONG)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.all_logs()}") from None

    def _ended_early(self) -> bool:
        assert self.state not in _ENDED, self.all_logs()
        return False

    def all_logs(self) -> str:
        """What happened, for a test that fails."""
        paths = [self.run_dir.journal, *self.run_dir.launches.glob("*/slurm.log")]
        paths += [*self.run_dir.attempts.glob("*/agent*.log"), *self.run_dir.attempts.glob("*/ranks/*/stderr.log")]
        logs = [f"--- {path}\n{path.read_text(errors='replace')[-3000:]}" for path in paths if path.is_file()]
        return "\n".join([json.dumps(self.shown(), indent=1, default=str), *self.slurm_jobs(), *logs])


def trained_steps(out: Path, attempt: int = 1) -> Trained:
    """What the ranks of one attempt have done; steps that some of them lack, since they were killed, do not count."""
    parts = [lines(path) for path in sorted(out.glob(f"steps-{attempt}-*.jsonl"))]
    if not parts:
        return {}
    ranks = [{step: (epoch, ids, loss) for step, epoch, ids, loss in part} for part in parts]
    return {
        step: (ranks[0][step][0], [each for rank in ranks for each in rank[step][1]], [rank[step][2] for rank in ranks])
        for step in sorted(set.intersection(*map(set, ranks)))
    }
