"""What the coordinator asks of the Slurm job in which it runs: its nodes, a process on each, and how much time is left.

The coordinator stops the attempt before Slurm would. Slurm's own signal for that (``--signal``) comes up to a minute
early, which is all that a short limit has.
"""

import os
import re
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.coordinator_records import COMMENT
from rekindle.contract.run_dir.journal import AttemptEnded, StopRequested, read_journal
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.cluster.node_start import node_command

LIMIT_INTERVAL = 1.0  # seconds between two checks of the time limit
_COMMENT_TIMEOUT = 20.0  # seconds
_ASK_AGAIN = 60.0  # seconds after which Slurm is asked again, where it has not answered
_TIMEOUT = 5.0  # seconds for it to answer
_MAX_SHARE = 0.1  # of the limit
_USUAL = 90.0  # seconds for the ranks to save, where it is not known what that takes
_LEAST, _MOST = 15.0, 150.0  # seconds, likewise, where it is
_MAX_DELAY = 60.0  # seconds by which a Slurm job may start after its time has begun to count; beyond, clocks differ
_LIMIT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
_SRUN = (
    "srun",
    "--nodes=1",
    "--ntasks=1",
    "--overlap",
    "--no-kill",
    "--kill-on-bad-exit=0",
    "--cpu-bind=none",
    "--mpi=none",
    "--unbuffered",
    "--export=NONE",
)
"""The step has all of the node's processors, memory and GPUs; binding its one task would leave it one processor."""


def hosts_of(node_list: str) -> list[str]:
    """Expand node names in Slurm's short form. Raises OSError, CalledProcessError."""
    shown = subprocess.run(["scontrol", "show", "hostnames", node_list], capture_output=True, text=True, check=True)
    return shown.stdout.split()


def write_comment(slurm_job: str, reason: str) -> None:
    """Let the comment of the Slurm job reach the server where nothing that is written here does."""
    own_name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    command = ["scontrol", "update", f"JobId={slurm_job}", f"Comment={COMMENT}{own_name}: {reason}"]
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(command, check=False, timeout=_COMMENT_TIMEOUT, stdin=subprocess.DEVNULL)


def start_by_srun(run_dir: RunDir, launch: int, host: str, output: IO[bytes]) -> "subprocess.Popen[bytes]":
    """Start the keeper of ``host`` as a step of its own, so that the end of one does not end another.

    Raises OSError where there is no ``srun``.
    """
    command = [*_SRUN, f"--nodelist={host}", *node_command(run_dir, launch, host)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


class Limit(NamedTuple):
    """``seconds`` is that of the Slurm job; ``started_at`` when it began, in seconds since the epoch, by Slurm."""

    seconds: float
    started_at: float


class TimeLimit:
    """The time limit of the Slurm job that began just before this was made."""

    def __init__(
        self, ask: Callable[[], Limit | None], stop_seconds: Callable[[], float | None], leave: Callable[[str], None]
    ) -> None:
        """``ask``: see ``limit_of``. ``stop_seconds``: see ``latest_stop_seconds``. ``leave``: stop now."""
        self._ask, self._stop_seconds, self._leave = ask, stop_seconds, leave
        self._began, self._wall_began = time.monotonic(), time.time()
        self._check_at = self._began
        self._left = False

    def check(self) -> None:
        """Call it every second. An administrator may change the limit, so it is read again before it counts."""
        now = time.monotonic()
        if self._left or now < self._check_at:
            return
        limit = self._ask()
        if limit is None:
            self._check_at = now + _ASK_AGAIN
            return
        delay = self._wall_began - limit.started_at
        end = self._began + limit.seconds - (delay if 0 <= delay <= _MAX_DELAY else 0.0)
        self._check_at = end - lead_time(limit.seconds, self._stop_seconds())
        if now >= self._check_at:
            self._left = True
            self._leave(f"Its time limit was {max(end - now, 0.0):.0f} s away.")


def lead_time(limit: float, stop_seconds: float | None) -> float:
    """Seconds before the end of ``limit`` at which the ranks are to save: at most a tenth of it."""
    needed = _USUAL if stop_seconds is None else min(max(2 * stop_seconds, _LEAST), _MOST)
    return min(needed, _MAX_SHARE * limit)


def limit_of(slurm_job: str) -> Limit | None:
    """The limit that Slurm shows; None where it does not answer."""
    command = ["squeue", "--noheader", f"--jobs={slurm_job}", "--format=%l|%S"]
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        own = {**os.environ, "SLURM_TIME_FORMAT": "%s"}
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT, env=own)
        limit, _, start = shown.stdout.strip().partition("|")
        return Limit(parse_limit(limit), float(start))
    return None


def parse_limit(text: str) -> float:
    """Seconds of ``1-02:03:04``, ``2:03:04`` or ``3:04``; infinite for UNLIMITED. Raises ValueError for others."""
    if text == "UNLIMITED":
        return float("inf")
    if (match := _LIMIT.fullmatch(text)) is None:
        raise ValueError(f"{text!r} is no time limit")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def latest_stop_seconds(journal: Path) -> float | None:
    """What it took the ranks of a job to save and stop when that was last requested; None where it never was."""
    requested, seconds = dict[int, float](), None
    for record in read_journal(journal):
        match record:
            case StopRequested():
                requested[record.attempt] = record.at
            case AttemptEnded(outcome=Outcome(klass=OutcomeClass.PREEMPTED)) if record.attempt in requested:
                seconds = record.at - requested[record.attempt]
    return seconds
