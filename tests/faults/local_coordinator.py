"""``local_coordinator.py RUN_DIR LAUNCH RESTART OWN_ADDRESS HOST=ADDRESS...``: one with nodes on this machine.

Each node has a loopback address of its own; everything but Slurm is real. ``ADDRESS@PID``: the node's keeper runs in
the network namespace of that process.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.buffered_journal import SupersededError
from rekindle.keeper.cluster.coordinator import LaunchOwner, TooFewNodesError, coordinate
from rekindle.keeper.cluster.node_start import node_command


class LocalStarter:
    """Starts the keeper of a node as a child; ``broken`` below the run directory names hosts where that fails."""

    def __init__(self, run_dir: RunDir, launch: int, addresses: dict[str, str]) -> None:
        self._run_dir, self._launch, self._addresses = run_dir, launch, addresses

    def __call__(self, host: str, stderr: IO[bytes]) -> "subprocess.Popen[bytes]":
        broken = self._run_dir.root / "broken"
        address, _, pid = self._addresses[host].partition("@")
        command = list(node_command(self._run_dir, self._launch, host, address))
        if pid:
            command = ["nsenter", "-t", pid, "--net", "--uts", "--", *command]
        if broken.exists() and host in broken.read_text().split():
            command = ["/bin/sh", "-c", "echo 'srun: error: no such directory' >&2; exit 2"]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, env={})


def main() -> int:
    run_dir, launch = RunDir(Path(sys.argv[1])), int(sys.argv[2])
    addresses = dict(each.split("=") for each in sys.argv[5:])
    owner = LaunchOwner(run_dir, launch, int(sys.argv[3]))
    try:
        coordinate(run_dir, owner, list(addresses), sys.argv[4], LocalStarter(run_dir, launch, addresses))
    except (SupersededError, TooFewNodesError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 3
    assert "torch" not in sys.modules, "a coordinator does without torch"
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)
