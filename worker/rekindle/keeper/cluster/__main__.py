"""``python -P -m rekindle.keeper.cluster RUN_DIR LAUNCH``: the batch script of a Slurm job becomes the coordinator.

It starts one keeper on each node of the allocation, decides about attempts, and is the only one to write the journal.
It never imports torch. Its output is ``launches/<LAUNCH>/slurm.log``.
"""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from rekindle.contract.processes import forbid_core_dumps, set_process_name
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.buffered_journal import SupersededError, UnwritableError
from rekindle.keeper.cluster.coordinator import LaunchOwner, TooFewNodesError, coordinate, own_address
from rekindle.keeper.cluster.slurm_job import hosts_of, limit_of, start_by_srun, write_comment
from rekindle.keeper.keeper_environment import log
from rekindle.keeper.supervisor import UnreadableError


def main(run_dir: RunDir, launch: int) -> int:
    """0 when the job has ended, was drained, or belongs to another launch; 1 when another launch is to follow."""
    set_process_name("rekindle-leader")
    forbid_core_dumps()
    owner = LaunchOwner(run_dir, launch, int(os.environ.get("SLURM_RESTART_COUNT", "0")))
    try:
        slurm_job, hosts = os.environ["SLURM_JOB_ID"], hosts_of(os.environ["SLURM_JOB_NODELIST"])
        starter = partial(start_by_srun, run_dir, launch)
        coordinate(run_dir, owner, hosts, own_address(hosts), starter, partial(limit_of, slurm_job))
    except SupersededError as error:
        log(f"leaving the job: {error}")
    except UnwritableError as error:
        write_comment(slurm_job, str(error))
        return 1
    except (OSError, KeyError, UnreadableError, TooFewNodesError, subprocess.SubprocessError) as error:
        log(f"the coordinator cannot continue: {error}; the server starts another launch")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(RunDir(Path(sys.argv[1]).absolute()), int(sys.argv[2])))
