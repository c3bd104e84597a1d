"""Runs torchrun without an import of torch each time: imports it once, then forks torchrun, which forks its ranks.

Reads requests from standard input, one JSON object a line (``{"argv", "directory", "environment", "log"}``), and
answers each with two lines: the pid of its torchrun, which leads a session of its own, and its exit code at the end.
"""

import faulthandler
import json
import os
import signal
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

from forks import fork
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

from rekindle.keeper.torchrun.store_server import start_store_server

MODULES = (
    "torch.distributed.run",
    "torch.distributed.elastic.rendezvous.c10d_rendezvous_backend",
    "torch.nn.parallel",
    "torch.utils.data",
    "torch._dynamo",  # optimizers import it at their first step
    "torchmetrics.classification",
    "rekindle.training.run",
)


def main() -> None:
    for module in MODULES:
        import_module(module)
    DynamicRendezvousHandler._create_tcp_store_server = _store_of_the_ranks
    faulthandler.register(signal.SIGRTMIN)  # the stacks of a process that hangs, in its log; forked ones inherit it
    for line in sys.stdin:
        request = json.loads(line)
        pid = fork(request["log"], partial(run, request))
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def run(request: dict) -> None:
    """Become torchrun."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    script = next(word for word in request["argv"] if word.endswith(".py"))
    sys.path[0] = str(Path(script).parent)  # where an interpreter of its own would look first
    import_module("torch.distributed.run").main(request["argv"])


def _store_of_the_ranks(*_: object) -> SimpleNamespace:
    """In a process of its own: in the agent, its thread held a lock while a rank was forked, which then hung."""
    return SimpleNamespace(port=start_store_server())


if __name__ == "__main__":
    main()
