"""``python -P -m rekindle.keeper.cluster.enter RUN_DIR LAUNCH HOST [ADDRESS]``: become the keeper of one node.

In two steps, since libraries that torch loads, such as OpenMP, read their variables when they are loaded: first the
environment of the launch, then, by exec, an interpreter that has it from its start.
"""

import os
import sys
from pathlib import Path

from rekindle.contract.environment import HOST, RUN_DIR
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.cluster.ownership import own_environment

_KEEPER = "rekindle.keeper.cluster.node"


def main(root: str, launch: str, host: str, *more: str) -> int:
    """Does not return, unless this node cannot run the keeper."""
    try:
        own_environment(RunDir(Path(root)).launch(int(launch)).environment)
        os.environ |= {RUN_DIR: root, HOST: host}
        os.execv(sys.executable, [sys.executable, "-P", "-m", _KEEPER, root, launch, host, *more])  # noqa: S606
    except (OSError, ValueError) as error:
        print(f"the keeper on {host} cannot continue: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
