"""``python -P -m rekindle.keeper RUN_DIR``: started by the server, one per job, in a session of its own."""

import sys
from pathlib import Path

from rekindle.contract.layout import RunDir
from rekindle.contract.locks import ExclusiveLock, LockHeldError
from rekindle.contract.prctl import adopt_orphans, forbid_core_dumps, set_process_name
from rekindle.keeper.bell import Bell
from rekindle.keeper.preload import preload
from rekindle.keeper.supervision import Keeper
from rekindle.keeper.watch import Watch


def main(run_dir: RunDir) -> int:
    """Keep the job of ``run_dir`` until it is over. 0 also when another keeper has it already."""
    try:
        lock = ExclusiveLock(run_dir.keeper_lock)
    except LockHeldError as error:
        print(f"{error}: leaving the job to it", file=sys.stderr)  # noqa: T201  # stderr is the keeper's log
        return 0
    set_process_name("rekindle-keeper")
    adopt_orphans()
    forbid_core_dumps()
    keeper = Keeper(run_dir, Watch(Bell(run_dir.bell)))
    if keeper.begin():
        if keeper.spec.warm:
            for failure in preload(keeper.spec, run_dir.code):
                print(f"not preloaded: {failure}", file=sys.stderr)  # noqa: T201  # as above
        keeper.supervise()
    lock.release()
    return 0


if __name__ == "__main__":
    sys.exit(main(RunDir(Path(sys.argv[1]))))
