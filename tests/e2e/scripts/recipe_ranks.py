"""Runs recipes on real ranks without paying for a start of Python each time: imports them once, then forks.

Reads requests from standard input, one JSON object a line, and answers each with the exit codes of its ranks:
``{"module", "ranks", "port", "args", "directory", "kill": [rank, step] or null}``. Rank n writes to ``rank-<n>.log`` in
the directory. A rank to be killed kills itself with SIGKILL after that step, before the step's snapshot.
"""

import os
import pkgutil
import signal
import sys
from functools import partial
from importlib import import_module

from forks import answer, fork, wait_for

import rekindle.recipes
from rekindle.training.sampler import ElasticSampler

GRACE = 30  # seconds for the others, once a rank has died


def main() -> None:
    for module in pkgutil.iter_modules(rekindle.recipes.__path__):
        import_module(f"rekindle.recipes.{module.name}")
    import_module("torch._dynamo")  # optimizers import it at their first step
    answer(launch)


def launch(request: dict) -> list[int]:
    logs = [f"{request['directory']}/rank-{rank}.log" for rank in range(request["ranks"])]
    return wait_for([fork(log, partial(train, request, rank)) for rank, log in enumerate(logs)], GRACE)


def train(request: dict, rank: int) -> None:
    os.chdir(request["directory"])
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(request["ranks"]))
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(request["port"]), REKINDLE_SNAPSHOT_POLICY='{"every_steps": 2}'
    )
    sys.argv = [f"{request['module']}.py", *request["args"]]
    if request["kill"] is not None and request["kill"][0] == rank:
        kill_after(request["kill"][1])
    import_module(request["module"]).main()


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
