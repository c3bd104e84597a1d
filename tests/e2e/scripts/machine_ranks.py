"""Ranks on machines that are none: each has /dev/shm, and other directories, of its own, in a mount namespace.

Imports torch once, then forks. Reads requests from standard input, one JSON object a line, and answers each with the
exit codes of its ranks:
``{"argv", "directory", "port", "environment", "machines": [{"ranks", "binds": [[from, to]]}]}``. Rank n writes to
``rank-<n>.log`` in the directory. Once a rank has failed, the others have GRACE seconds to end.
"""

import ctypes
import json
import os
import runpy
import signal
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

from preloaded_torchrun import MODULES

GRACE, LONGEST = 15, 120  # seconds
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 4096, 16384, 1 << 18
LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    for module in (*MODULES, "torch.distributed.tensor"):
        import_module(module)
    for line in sys.stdin:
        print(json.dumps(launch(json.loads(line))), flush=True)


def launch(request: dict) -> list[int]:
    machines = request["machines"]
    ranks = [(node, local) for node, machine in enumerate(machines) for local in range(machine["ranks"])]
    pids = []
    for rank, (node, local) in enumerate(ranks):
        own = {
            "RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": len(ranks), "LOCAL_WORLD_SIZE": machines[node]["ranks"],
            "GROUP_RANK": node, "REKINDLE_NODE": node, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": request["port"],
        }  # fmt: skip
        pids.append(fork(request, machines[node]["binds"], {name: str(value) for name, value in own.items()}))
    return wait_for(pids)


def wait_for(pids: list[int]) -> list[int]:
    codes: dict[int, int] = {}
    deadline = time.monotonic() + LONGEST
    while len(codes) < len(pids):
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            codes[pid] = os.waitstatus_to_exitcode(status)
            if codes[pid] != 0:
                deadline = min(deadline, time.monotonic() + GRACE)
            continue
        if time.monotonic() > deadline:
            for late in set(pids) - set(codes):
                os.kill(late, signal.SIGKILL)
        time.sleep(0.01)
    return [codes[pid] for pid in pids]


def fork(request: dict, binds: list[list[str]], own: dict[str, str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        log = os.open(f"{request['directory']}/rank-{own['RANK']}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        move_in(binds)
        os.environ.clear()
        os.environ.update(request["environment"] | own)
        os.chdir(request["directory"])
        sys.argv = request["argv"]
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001  # a forked rank must never return into the loop of its parent
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


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
