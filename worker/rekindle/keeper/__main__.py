"""``python -P -m rekindle.keeper RUN_DIR``: started by the server, one per job, in a session of its own."""

import os
import shutil
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from rekindle.contract.locks import ExclusiveLock, LockHeldError
from rekindle.contract.processes import descendants, forbid_core_dumps, set_child_subreaper, set_process_name
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.event_loop import ControlFifo, EventLoop
from rekindle.keeper.keeper_environment import SecretError, make_private_tmp, read_secrets, write_environment_info
from rekindle.keeper.rank_processes.process_tree import kill_all, reap_children
from rekindle.keeper.spare import is_spare, serve
from rekindle.keeper.supervisor import Keeper, UnreadableError
from rekindle.keeper.torchrun.preload import preload


def main(run_dir: RunDir) -> int:
    """Keep the job of ``run_dir`` until it is over. 0 also when another keeper owns it."""
    try:
        lock = ExclusiveLock(run_dir.keeper_lock)
    except LockHeldError as error:
        _log(f"{error}: leaving the job to it")
        return 0
    set_process_name("rekindle-keeper")
    set_child_subreaper()
    forbid_core_dumps()
    is_over, tmp = False, make_private_tmp()
    try:
        read_secrets()
        is_over = _keep(run_dir)
    except (OSError, UnreadableError, SecretError) as error:
        _log(f"the keeper cannot continue: {error}; it has stopped the ranks, and the server starts another")
        return 1
    finally:
        kill_all(partial(descendants, os.getpid()), reap_children)
        if is_over and tmp is not None:
            shutil.rmtree(tmp, ignore_errors=True)
        lock.release()
    return 0


def _keep(run_dir: RunDir) -> bool:
    """Keep the job; returns whether it has ended, and is not to be continued by another keeper."""
    keeper = Keeper(run_dir, EventLoop(ControlFifo(run_dir.control)))
    if keeper.begin():
        write_environment_info(run_dir, keeper.run)
        if keeper.spec.warm:
            for failure in preload(keeper.spec, run_dir.code):
                _log(f"not preloaded: {failure}")
        keeper.supervise()
    return keeper.is_over


def _log(message: str) -> None:
    with suppress(OSError):  # the log may be on the disk whose being full is reported
        print(message, file=sys.stderr)  # noqa: T201  # stderr is the keeper's log


if __name__ == "__main__":
    if is_spare(sys.argv[1]):
        serve(sys.argv[1], main)
    exit_code = main(RunDir(Path(sys.argv[1]).absolute()))
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(exit_code)  # to finalize an interpreter that has imported torch takes seconds on a busy machine
