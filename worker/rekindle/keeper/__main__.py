"""``python -P -m rekindle.keeper RUN_DIR``: started by the server, one per job, in a session of its own."""

import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from rekindle.contract.locks import ExclusiveLock, LockHeldError
from rekindle.contract.process_ties import forbid_core_dumps, set_child_subreaper, set_process_name
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.bell import ControlFifo
from rekindle.keeper.preload import preload
from rekindle.keeper.process_tree import descendants, end_all, reap
from rekindle.keeper.supervision import Keeper, UnreadableError
from rekindle.keeper.surroundings import note_surroundings
from rekindle.keeper.watch import Watch


def main(run_dir: RunDir) -> int:
    """Keep the job of ``run_dir`` until it is over. 0 also when another keeper has it already."""
    try:
        lock = ExclusiveLock(run_dir.keeper_lock)
    except LockHeldError as error:
        _say(f"{error}: leaving the job to it")
        return 0
    set_process_name("rekindle-keeper")
    set_child_subreaper()
    forbid_core_dumps()
    try:
        _keep(run_dir)
    except (OSError, UnreadableError) as error:
        _say(f"the keeper cannot go on: {error}; it has stopped the ranks, and the server starts another")
        return 1
    finally:
        end_all(partial(descendants, os.getpid()), reap)
        lock.release()
    return 0


def _keep(run_dir: RunDir) -> None:
    keeper = Keeper(run_dir, Watch(ControlFifo(run_dir.bell)))
    if keeper.begin():
        note_surroundings(run_dir, keeper.run)
        if keeper.spec.warm:
            for failure in preload(keeper.spec, run_dir.code):
                _say(f"not preloaded: {failure}")
        keeper.supervise()


def _say(sentence: str) -> None:
    with suppress(OSError):  # the log may lie on the disk whose being full is to be told
        print(sentence, file=sys.stderr)  # noqa: T201  # stderr is the keeper's log


if __name__ == "__main__":
    sys.exit(main(RunDir(Path(sys.argv[1]).absolute())))
