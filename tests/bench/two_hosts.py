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
from contextlib import suppress
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).parents[1]))

from recovery import ROUND, WORKAROUND, report
from side_by_side import SCRIPT, Result, Steps, kill_and_watch

import rekindle
from network_hosts import Host, network_hosts  # type: ignore[import-not-found]
from rekindle.contract.environment import clean_environment
from rekindle.contract.files import write_json
from rekindle.contract.job import JobSpec, RunIntent, SlurmOptions, TargetKind
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.states import JobIntent
from rekindle.keeper.cluster.leader import lead
from rekindle.keeper.cluster.ownership import LaunchOwner
from rekindle.keeper.cluster.starters import node_command

_LAUNCH = 1


class BareRun:
    """One torchrun on each host, with restarts of its own."""

    def __init__(self, directory: Path, args: list[str], hosts: Sequence[Host]) -> None:
        self.steps = Steps(directory)
        own = {"BENCH_DIR": str(directory), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", **WORKAROUND}
        self._agents = []
        for number, host in enumerate(hosts):
            command = [
                sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1",
                "--rdzv-backend=c10d", f"--rdzv-endpoint={hosts[0].address}:29400", f"--rdzv-id={directory.name}",
                f"--rdzv-conf=is_host={number == 0}", f"--local-addr={host.address}", f"--max-restarts={ROUND}",
                str(SCRIPT), *args,
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
    """A leading keeper on the first host, and the keepers of both."""

    def __init__(self, directory: Path, args: list[str], hosts: Sequence[Host]) -> None:
        self.steps = Steps(directory)
        run_dir = RunDir(directory / "run")
        for path in (run_dir.code, run_dir.attempts, run_dir.launch(_LAUNCH).root):
            path.mkdir(parents=True)
        (run_dir.code / SCRIPT.name).write_bytes(SCRIPT.read_bytes())
        spec = JobSpec(
            name="two hosts", kind=TargetKind.SCRIPT, target=SCRIPT.name, python=sys.executable, device="cpu",
            min_ranks=2, max_ranks=2, nodes=2, min_nodes=2, slurm=SlurmOptions(), args=args, max_failures=2 * ROUND,
        )  # fmt: skip
        write_json(run_dir.spec, spec.to_json())
        write_json(run_dir.intent, RunIntent(JobIntent.RUN, 1, [], 2 * ROUND, launch=_LAUNCH).to_json())
        own = {**clean_environment(os.environ), "OMP_NUM_THREADS": "1", "BENCH_DIR": str(directory)}
        own["PYTHONPATH"] = str(Path(rekindle.__file__).parents[1])
        write_json(run_dir.launch(_LAUNCH).environment, own)
        command = [sys.executable, __file__, "lead", run_dir.root, *(f"{each.address}={each.pid}" for each in hosts)]
        with run_dir.keeper_log.open("wb") as log:
            self._leader = subprocess.Popen(hosts[0].command(*command), env=own, stdout=log, stderr=log)

    def alive(self) -> bool:
        return self._leader.poll() is None

    def close(self) -> None:
        if self.alive():
            self._leader.send_signal(signal.SIGTERM)
        self._leader.wait(90)


class HostStarter:
    """Starts the keeper of a host; ``pids`` are of the processes that hold the hosts, by address."""

    def __init__(self, run_dir: RunDir, pids: dict[str, str]) -> None:
        self._run_dir, self._pids = run_dir, pids

    def __call__(self, host: str, stderr: IO[bytes]) -> "subprocess.Popen[bytes]":
        words = ["nsenter", "-t", self._pids[host], "--net", "--uts", "--", *node_command(self._run_dir, _LAUNCH, host)]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)


def lead_run(root: str, *hosts: str) -> None:
    """Become the leading keeper."""
    run_dir, pids = RunDir(Path(root)), dict(each.split("=") for each in hosts)
    lead(run_dir, LaunchOwner(run_dir, _LAUNCH, 0), list(pids), next(iter(pids)), HostStarter(run_dir, pids))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    options = parser.parse_args()
    steps = 12 * (ROUND + 1)
    args = [f"--steps={steps}", "--model=resnet18", "--every=10", "--pause=0"]
    results: dict[str, list[Result]] = {"torchrun": [], "rekindle": []}
    with tempfile.TemporaryDirectory(prefix="two-hosts-") as directory, network_hosts(2) as (_, hosts):
        for number in range(options.kills // ROUND):
            for name, kind in (("torchrun", BareRun), ("rekindle", KeptRun)):
                place = Path(directory) / f"{name}-{number}"
                place.mkdir()
                run = kind(place, args, hosts)
                results[name].append(kill_and_watch(run, ROUND, steps - 1, own_steps=12))
                with suppress(subprocess.TimeoutExpired):
                    run.close()
                last = results[name][-1]
                print(name, [round(each, 2) for each in last.downtimes], "came back" if last.came_back else "LOST",
                      flush=True)  # fmt: skip
    report(results)


if __name__ == "__main__":
    if sys.argv[1:2] == ["lead"]:
        lead_run(*sys.argv[2:])
    else:
        main()
