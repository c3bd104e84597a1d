"""Kill to next finished step on two hosts: bare torchrun against the keepers of a cluster's job, in one run.

    python tests/bench/two_hosts.py --kills 10

The hosts are network namespaces of this machine (root). One rank on each trains ResNet-18 with momentum, a snapshot of
about 90 MB every tenth step; rank 1 is killed after every twelve steps of its own. torchrun runs with its shared store
switched off and with five restarts. Rounds of five kills alternate between the two, so that both see the same machine.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from recovery import ARGS, ROUND, WORKAROUND, compare
from side_by_side import SCRIPT, Starts, Steps

import rekindle
from network_hosts import Host, network_hosts  # type: ignore[import-not-found]
from rekindle.contract.environment import clean_environment
from rekindle.contract.files import write_json
from rekindle.contract.job import JobSpec, RunIntent
from rekindle.contract.job_options import SlurmOptions, TargetKind
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.states import JobIntent

_LAUNCH = 1
_COORDINATOR = Path(__file__).parents[1] / "faults" / "local_coordinator.py"


class BareRun:
    """One torchrun on each host, with restarts of its own."""

    def __init__(self, directory: Path, hosts: Sequence[Host]) -> None:
        self.steps = Steps(directory)
        own = {"BENCH_DIR": str(directory), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", **WORKAROUND}
        self._agents = []
        for number, host in enumerate(hosts):
            command = [
                sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1",
                "--rdzv-backend=c10d", f"--rdzv-endpoint={hosts[0].address}:29400", f"--rdzv-id={directory.name}",
                f"--rdzv-conf=is_host={number == 0}", f"--local-addr={host.address}", f"--max-restarts={ROUND}",
                str(SCRIPT), *ARGS,
            ]  # fmt: skip
            with (directory / f"torchrun-{number}.log").open("wb") as log:
                agent = subprocess.Popen(host.command(*command), env={**os.environ, **own}, stdout=log, stderr=log)
            self._agents.append(agent)

    def alive(self) -> bool:
        return any(agent.poll() is None for agent in self._agents)

    def close(self) -> None:
        for agent in self._agents:
            agent.terminate()
        for agent in self._agents:
            agent.wait(90)


class KeptRun:
    """A coordinator on the first host, and the keepers of both."""

    def __init__(self, directory: Path, hosts: Sequence[Host]) -> None:
        self.steps = Steps(directory)
        run_dir = RunDir(directory / "run")
        for path in (run_dir.code, run_dir.attempts, run_dir.launch(_LAUNCH).root):
            path.mkdir(parents=True)
        (run_dir.code / SCRIPT.name).write_bytes(SCRIPT.read_bytes())
        spec = JobSpec(
            name="two hosts", kind=TargetKind.SCRIPT, target=SCRIPT.name, python=sys.executable, device="cpu",
            min_ranks=2, max_ranks=2, nodes=2, min_nodes=2, slurm=SlurmOptions(), args=ARGS, max_failures=2 * ROUND,
        )  # fmt: skip
        write_json(run_dir.spec, spec.to_json())
        write_json(run_dir.intent, RunIntent(JobIntent.RUN, 1, [], 2 * ROUND, launch=_LAUNCH).to_json())
        own = {**clean_environment(os.environ), "OMP_NUM_THREADS": "1", "BENCH_DIR": str(directory)}
        own["PYTHONPATH"] = str(Path(rekindle.__file__).parents[1])
        write_json(run_dir.launch(_LAUNCH).environment, own)
        nodes = [f"{each.address}={each.address}@{each.pid}" for each in hosts]
        command = [sys.executable, _COORDINATOR, run_dir.root, _LAUNCH, 0, hosts[0].address, *nodes]
        with run_dir.keeper_log.open("wb") as log:
            self._leader = subprocess.Popen(hosts[0].command(*command), env=own, stdout=log, stderr=log)

    def alive(self) -> bool:
        return self._leader.poll() is None

    def close(self) -> None:
        if self.alive():
            self._leader.send_signal(signal.SIGTERM)
        self._leader.wait(90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="two-hosts-") as directory, network_hosts(2) as (_, hosts):
        starts: Starts = {
            "torchrun": lambda place: BareRun(place, hosts),
            "rekindle": lambda place: KeptRun(place, hosts),
        }
        compare(starts, Path(directory), options.kills)


if __name__ == "__main__":
    main()
