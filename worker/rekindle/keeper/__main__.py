"""``python -P -m rekindle.keeper RUN_DIR``: started by the server, one per job, in a session of its own."""

import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from rekindle.contract.locks import ExclusiveLock, LockHeldError
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.event_loop import ControlFifo, EventLoop
from rekindle.keeper.keeper_environment import SecretError, keep_job, log, write_environment_info
from rekindle.keeper.spare import is_spare, serve
from rekindle.keeper.supervisor import Keeper, UnreadableError
from rekindle.keeper.torchrun.preload import preload


def main(run_dir: RunDir) -> int:
    """Keep the job of ``run_dir`` until it is over. 0 also when another keeper owns it."""
    try:
        lock = ExclusiveLock(run_dir.keeper_lock)
    except LockHeldError as error:
        log(f"{error}: leaving the job to it")
        return 0
    try:
        keep_job("rekindle-keeper", partial(_keep, run_dir))
    except (OSError, UnreadableError, SecretError) as error:
        log(f"the keeper cannot continue: {error}; it has stopped the ranks, and the server starts another")
        return 1
    finally:
        lock.release()
    return 0


def _keep(run_dir: RunDir) -> bool:
    """Keep the job; returns whether it has ended, and is not to be continued by another keeper."""
    keeper = Keeper(run_dir, EventLoop(ControlFifo(run_dir.control)))
    if keeper.begin():
        write_environment_info(run_dir, keeper.run)
        if keeper.spec.warm:
            for failure in preload(keeper.spec, run_dir.code):
                log(f"not preloaded: {failure}")
        keeper.supervise()
    return keeper.is_over


if __name__ == "__main__":
    if is_spare(sys.argv[1]):
        serve(sys.argv[1], main)
    exit_code = main(RunDir(Path(sys.argv[1]).absolute()))
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(exit_code)  # to finalize an interpreter that has imported torch takes seconds on a busy machine
