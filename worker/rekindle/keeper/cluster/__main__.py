"""``python -P -m rekindle.keeper.cluster RUN_DIR LAUNCH``: the batch script of a Slurm job becomes the leading keeper.

It starts one keeper on each node of the allocation, decides about attempts, and is the only one to write the journal.
It never imports torch. Its output is ``launches/<LAUNCH>/slurm.log``.
"""

import os
import socket
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from rekindle.contract.processes import forbid_core_dumps, set_process_name
from rekindle.contract.run_dir.leader_records import COMMENT
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.buffered_journal import SupersededError, UnwritableError
from rekindle.keeper.cluster.cluster_runner import TooFewNodesError
from rekindle.keeper.cluster.leader import lead, own_address
from rekindle.keeper.cluster.ownership import LaunchOwner
from rekindle.keeper.cluster.starters import SrunStarter
from rekindle.keeper.cluster.time_limit import limit_of
from rekindle.keeper.supervisor import UnreadableError

_COMMENT_TIMEOUT = 20.0  # seconds


def main(run_dir: RunDir, launch: int) -> int:
    """0 when the job has ended, was drained, or belongs to another launch; 1 when another launch is to follow."""
    set_process_name("rekindle-leader")
    forbid_core_dumps()
    owner = LaunchOwner(run_dir, launch, int(os.environ.get("SLURM_RESTART_COUNT", "0")))
    try:
        hosts = _hosts(os.environ["SLURM_JOB_NODELIST"])
        ask_limit = partial(limit_of, os.environ["SLURM_JOB_ID"])
        lead(run_dir, owner, hosts, own_address(hosts), SrunStarter(run_dir, launch), ask_limit)
    except SupersededError as error:
        _log(f"leaving the job: {error}")
    except UnwritableError as error:
        _write_comment(f"{_own_name()}: {error}")
        return 1
    except (OSError, KeyError, UnreadableError, TooFewNodesError, subprocess.SubprocessError) as error:
        _log(f"the leading keeper cannot continue: {error}; the server starts another launch")
        return 1
    return 0


def _write_comment(reason: str) -> None:
    """The comment of the Slurm job reaches the server where nothing that is written here does."""
    command = ["scontrol", "update", f"JobId={os.environ['SLURM_JOB_ID']}", f"Comment={COMMENT}{reason}"]
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(command, check=False, timeout=_COMMENT_TIMEOUT, stdin=subprocess.DEVNULL)


def _own_name() -> str:
    """As Slurm names this node."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def _hosts(node_list: str) -> list[str]:
    """The names in Slurm's short form. Raises OSError, CalledProcessError."""
    shown = subprocess.run(["scontrol", "show", "hostnames", node_list], capture_output=True, text=True, check=True)
    return shown.stdout.split()


def _log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)  # noqa: T201  # stderr is the log of the launch


if __name__ == "__main__":
    sys.exit(main(RunDir(Path(sys.argv[1]).absolute()), int(sys.argv[2])))
