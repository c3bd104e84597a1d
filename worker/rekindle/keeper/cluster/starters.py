"""How the keeper of a node is started: by ``srun``, one step for each."""

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, Protocol

from rekindle.contract.environment import HOST, RUN_DIR
from rekindle.contract.run_dir.paths import RunDir

MODULE = "rekindle.keeper.cluster.enter"
PROLOGUE_FAILED = "the prologue failed"
"""Begins what the start of a keeper prints last where the job's own prologue is to blame."""
_CHECKED = """
fail() { echo "$1" >&2; exit 78; }
[ -f "$1/spec.json" ] || fail "it does not see $1"
[ -d "$2/rekindle" ] || fail "it does not see $2"
[ -x "$3" ] || fail "there is no Python at $3"
shift 3
exec "$@"
"""
"""What a node must have, in words; else the end of its output would be an error of the interpreter or of env."""


class Starter(Protocol):
    """Starts the keeper of a node; the process that is returned ends when that does."""

    def __call__(self, host: str, stderr: IO[bytes]) -> "subprocess.Popen[bytes]": ...


class SrunStarter:
    """One step of the allocation for each keeper, so that the end of one does not end another."""

    def __init__(self, run_dir: RunDir, launch: int) -> None:
        self._run_dir, self._launch = run_dir, launch

    def __call__(self, host: str, stderr: IO[bytes]) -> "subprocess.Popen[bytes]":
        """Raises OSError where there is no ``srun``."""
        command = [*srun_options(host), *node_command(self._run_dir, self._launch, host)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)


def srun_options(host: str) -> list[str]:
    """The step has all of the node's processors, memory and GPUs; binding its one task would leave it one processor."""
    return [
        "srun",
        "--nodes=1",
        "--ntasks=1",
        f"--nodelist={host}",
        "--overlap",
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--cpu-bind=none",
        "--mpi=none",
        "--unbuffered",
        "--export=NONE",
    ]


def node_command(run_dir: RunDir, launch: int, host: str, *more: str) -> Sequence[str]:
    """With the interpreter and the path of this keeper, and nothing else of its environment."""
    path = os.environ.get("PYTHONPATH", "")
    python = [sys.executable, "-P", "-m", MODULE, str(run_dir.root), str(launch), host, *more]
    found_by = [f"{RUN_DIR}={run_dir.root}", f"{HOST}={host}"]  # what the keeper leaves, by the next one
    needed = [str(run_dir.root), path.partition(os.pathsep)[0], sys.executable]
    return ["/bin/sh", "-c", _CHECKED, "sh", *needed, "/usr/bin/env", f"PYTHONPATH={path}", *found_by, *python]
