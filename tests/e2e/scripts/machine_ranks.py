"""Ranks on machines that are none: each has /dev/shm, and other directories, of its own, in a mount namespace.

Imports torch once, then forks. Reads requests from standard input, one JSON object a line, and answers each with the
exit codes of its ranks:
``{"argv", "directory", "port", "environment", "machines": [{"ranks", "binds": [[from, to]]}]}``. Rank n writes to
``rank-<n>.log`` in the directory. Once a rank has failed, the others have GRACE seconds to end.
"""

import ctypes
import os
import runpy
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

from forks import answer, fork, wait_for
from preloaded_torchrun import MODULES

GRACE, LONGEST = 15, 120  # seconds
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 4096, 16384, 1 << 18
LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    for module in (*MODULES, "torch.distributed.tensor"):
        import_module(module)
    answer(launch)


def launch(request: dict) -> list[int]:
    machines = request["machines"]
    ranks = [(node, local) for node, machine in enumerate(machines) for local in range(machine["ranks"])]
    pids = []
    for rank, (node, local) in enumerate(ranks):
        own = {
            "RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": len(ranks), "LOCAL_WORLD_SIZE": machines[node]["ranks"],
            "GROUP_RANK": node, "REKINDLE_NODE": node, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": request["port"],
        }  # fmt: skip
        environment = request["environment"] | {name: str(value) for name, value in own.items()}
        log = f"{request['directory']}/rank-{rank}.log"
        pids.append(fork(log, partial(train, request, machines[node]["binds"], environment)))
    return wait_for(pids, GRACE, LONGEST)


def train(request: dict, binds: list[list[str]], environment: dict[str, str]) -> None:
    move_in(binds)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(request["directory"])
    sys.argv = request["argv"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


def move_in(binds: list[list[str]]) -> None:
    """Into a mount namespace in which each of ``binds`` shows the first directory in place of the second."""
    check(LIBC.unshare(CLONE_NEWNS))
    check(LIBC.mount(None, b"/", None, MS_REC | MS_PRIVATE, None))
    for source, target in binds:
        check(LIBC.mount(source.encode(), target.encode(), None, MS_BIND, None))


def check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    main()
