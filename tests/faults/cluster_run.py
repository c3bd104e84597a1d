"""One run directory with a coordinator and its nodes, on loopback addresses of this machine."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from faults.faulty_run import FaultyRun
from rekindle.contract.environment import HOST, clean_environment
from rekindle.contract.files import write_json
from rekindle.contract.job import JobSpec, RunIntent
from rekindle.contract.job_options import SlurmOptions
from rekindle.contract.processes import ProcessIdentity
from rekindle.contract.run_dir.coordinator_records import Coordinator
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.states import JobIntent
from run_files import processes_with

_COORDINATOR = Path(__file__).parent / "local_coordinator.py"


class ClusterRun(FaultyRun):
    """A ``FaultyRun`` whose keeper leads a launch on ``nodes`` nodes."""

    def __init__(
        self, root: Path, script: str, *args: str, nodes: int = 2, min_nodes: int | None = None,
        ranks_per_node: int = 1, host_timeout: float = 20.0, **spec: Any,
    ) -> None:  # fmt: skip
        self.launch, self._host_timeout = 1, host_timeout
        min_nodes = nodes if min_nodes is None else min_nodes
        super().__init__(
            root, script, *args, ranks=nodes * ranks_per_node, nodes=nodes, min_nodes=min_nodes, slurm=SlurmOptions(),
            **spec,
        )  # fmt: skip
        job = read_record(self.run_dir.spec, JobSpec)
        assert job is not None
        write_json(self.run_dir.spec, replace(job, min_ranks=min_nodes * ranks_per_node).to_json())
        self.hosts = [f"n{number + 1}" for number in range(nodes)]
        self.own_address, self.enter = "127.0.0.1", list[str]()  # of the coordinator, and how its host is entered
        self.addresses = {host: f"127.0.0.{number + 2}" for number, host in enumerate(self.hosts)}

    def start(self, *, restart: int = 0, hosts: list[str] | None = None, **environment: str) -> Any:
        """Start the coordinator of the current launch, as its batch script would."""
        self.run_dir.launch(self.launch).root.mkdir(parents=True, exist_ok=True)
        own = {**clean_environment(os.environ), "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(_paths())}
        write_json(self.run_dir.launch(self.launch).environment, {**own, **environment})
        addresses = [f"{host}={self.addresses[host]}" for host in hosts or self.hosts]
        with self.run_dir.keeper_log.open("ab") as log:
            command = [sys.executable, str(_COORDINATOR), str(self.run_dir.root), str(self.launch), str(restart)]
            command = [*self.enter, *command, self.own_address]
            self.keeper = subprocess.Popen(
                [*command, *addresses], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=own,
                start_new_session=True,
            )  # fmt: skip
        self._keepers.append(self.keeper)
        return self.keeper

    def want(self, want: JobIntent, run: int = 1, *, message: bool = True) -> None:
        intent = RunIntent(want, run, [], self._max_failures, healthy_seconds=self._healthy_seconds)
        intent = replace(intent, launch=self.launch, host_timeout=self._host_timeout)
        write_json(self.run_dir.intent, intent.to_json())

    def leader(self) -> Coordinator:
        found = read_record(self.run_dir.launch(self.launch).leader, Coordinator)
        assert found is not None
        return found

    def node_keeper(self, host: str) -> int:
        """Pid of the keeper of a node."""
        return min(self.of_host(host, "rekindle-node"))

    def signal_node(self, host: str, number: int = signal.SIGKILL) -> None:
        """Every process of one node, as a machine that stops; SIGKILL closes its connections, SIGSTOP does not."""
        for pid in self.of_host(host):
            os.kill(pid, number)

    def of_host(self, host: str, name: str | None = None) -> list[int]:
        found = processes_with(f"{HOST}={host}", self.processes())
        return [pid for pid in found if name is None or Path(f"/proc/{pid}/comm").read_text().strip() == name]

    def all_logs(self) -> str:
        logs = self.run_dir.launches.glob("*/*.log")
        more = "\n".join(f"--- {path}\n{path.read_text()[-3000:]}" for path in logs)
        agents = "\n".join(
            f"--- {path}\n{path.read_text()[-2000:]}" for path in self.run_dir.attempts.glob("*/agent-*.log")
        )
        return "\n".join([super().all_logs(), more, agents])


def _paths() -> list[str]:
    import rekindle

    return [str(Path(rekindle.__file__).parent.parent)]


def alive(pid: int) -> bool:
    identity = ProcessIdentity.of(pid)
    return identity is not None and identity.alive()
