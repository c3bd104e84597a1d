"""Several machines on one: their ranks have a /dev/shm of their own, and may see directories with stale caches."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from free_port import free_port
from rekindle.contract.environment import attempt_environment, clean_environment
from rekindle.contract.files import write_json
from rekindle.contract.run_dir.paths import RunDir
from script_process import ScriptProcess

SCRIPTS = Path(__file__).parent / "e2e" / "scripts"
RARELY = '{"every_steps": 1000, "every_seconds": null, "every_epochs": null, "keep": 3}'


@dataclass
class Machine:
    """``memory`` is its /dev/shm; ``views`` are directories of others that it sees by other mounts."""

    memory: Path
    views: dict[Path, Path] = field(default_factory=dict)

    def lose(self) -> None:
        """All that it had in memory; it comes back empty, or a replacement does."""
        shutil.rmtree(self.memory)
        self.memory.mkdir()

    def files(self, pattern: str) -> list[Path]:
        """Files of the snapshots in memory."""
        return sorted(self.memory.glob(f"rekindle-*/*/{pattern}"))


@dataclass(frozen=True)
class Ended:
    """Exit code and output of each rank."""

    codes: list[int]
    outputs: list[str]

    @property
    def answers(self) -> list:
        """What each rank has printed last, as JSON."""
        return [json.loads(output.splitlines()[-1]) for output in self.outputs]


class MachineRanks(ScriptProcess):
    """Idle between two launches."""

    def __init__(self) -> None:
        """Skips the test where this process may make no mount namespace."""
        if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
            pytest.skip("only root may give ranks a /dev/shm of their own")
        super().__init__(SCRIPTS / "machine_ranks.py")

    def attempt(
        self, run_dir: RunDir, number: int, machines: list[Machine], script: str, *args: str, ranks: int = 1, **own: str
    ) -> Ended:
        """One attempt of a job, with ``ranks`` on each machine; the keeper's part is played here."""
        generation = f"{number}-test"
        write_json(run_dir.fence, {"generation": generation})
        environment = {
            **clean_environment(os.environ),
            "OMP_NUM_THREADS": "1",
            "OUT": str(run_dir.root),
            **attempt_environment(run_dir=run_dir, attempt=number, generation=generation, snapshot_policy=RARELY),
            **own,
        }
        request = {
            "argv": [str(SCRIPTS / script), *args],
            "directory": str(run_dir.root),
            "port": free_port(),
            "environment": environment,
            "machines": [{"ranks": ranks, "binds": _binds(machine)} for machine in machines],
        }
        codes = json.loads(self.ask(json.dumps(request)))
        return Ended(codes, [(run_dir.root / f"rank-{rank}.log").read_text() for rank in range(len(codes))])


def _binds(machine: Machine) -> list[list[str]]:
    views = [[str(source), str(target)] for target, source in machine.views.items()]
    return [[str(machine.memory), "/dev/shm"], *views]  # noqa: S108  # of a mount namespace


@contextmanager
def stale_view(directory: Path, mount: Path, seconds: float) -> Iterator[None]:
    """``directory`` at ``mount``, as a client that caches names, absent ones too, and sizes for ``seconds``.

    It does so even when a file is opened: a network file system that promises close-to-open asks its server then.
    """
    if shutil.which("bindfs") is None or os.geteuid() != 0:
        pytest.skip("only root with bindfs (apt-get install bindfs) may mount a directory with stale caches")
    mount.mkdir()
    options = ",".join(f"{name}_timeout={seconds}" for name in ("entry", "negative", "attr"))
    ended = subprocess.run(["bindfs", "-o", options, str(directory), str(mount)], capture_output=True, check=False)
    if ended.returncode != 0:
        pytest.skip(f"this machine mounts no FUSE: {ended.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(mount)], check=True)
