"""Runs recipes on real ranks without paying for a start of Python each time: imports them once, then forks.

Reads requests from standard input, one JSON object a line, and answers each with the exit codes of its ranks:
``{"module", "ranks", "port", "args", "directory", "kill": [rank, step] or null}``. Rank n writes to ``rank-<n>.log`` in
the directory. A rank to be killed kills itself with SIGKILL after that step, before the step's snapshot.
"""

import json
import os
import pkgutil
import signal
import sys
import time
import traceback
from importlib import import_module

import rekindle.recipes
from rekindle.training.data.sampler import ElasticSampler

GRACE = 30  # seconds for the others, once a rank has died


def main() -> None:
    for module in pkgutil.iter_modules(rekindle.recipes.__path__):
        import_module(f"rekindle.recipes.{module.name}")
    import_module("torch._dynamo")  # optimizers import it at their first step
    for line in sys.stdin:
        print(json.dumps(launch(json.loads(line))), flush=True)


def launch(request: dict) -> list[int]:
    pids = [fork(request, rank) for rank in range(request["ranks"])]
    codes: dict[int, int] = {}
    deadline = None
    while len(codes) < len(pids):
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            codes[pid] = os.waitstatus_to_exitcode(status)
            if codes[pid] != 0 and deadline is None:
                deadline = time.monotonic() + GRACE
            continue
        if deadline is not None and time.monotonic() > deadline:
            for late in set(pids) - set(codes):
                os.kill(late, signal.SIGKILL)
        time.sleep(0.01)
    return [codes[pid] for pid in pids]


def fork(request: dict, rank: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        become(request, rank)
        import_module(request["module"]).main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001  # a forked rank must never return into the loop of its parent
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def become(request: dict, rank: int) -> None:
    os.chdir(request["directory"])
    log = os.open(f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(request["ranks"]))
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(request["port"]), REKINDLE_SNAPSHOT_POLICY='{"every_steps": 2}'
    )
    sys.argv = [f"{request['module']}.py", *request["args"]]
    if request["kill"] is not None and request["kill"][0] == rank:
        kill_after(request["kill"][1])


def kill_after(step: int) -> None:
    advance, trained = ElasticSampler.advance, []

    def count(sampler: ElasticSampler) -> None:
        advance(sampler)
        trained.append(sampler)
        if len(trained) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    ElasticSampler.advance = count


if __name__ == "__main__":
    main()
