"""The rendezvous of an attempt, whose members are known before it starts: torchrun's own is open to all, and unpickles.

torchrun asks a backend for it by name. Its agents share a store to number their ranks: here that is an object in
memory, also on several nodes, since all have equally many ranks. The ranks share another: on one machine the agent
serves it to processes of the same user, on several the keeper of the first node does.
"""

import os
import socket
from argparse import Namespace
from collections.abc import Callable

from torch.distributed import HashStore  # type: ignore[attr-defined]  # which is public all the same
from torch.distributed.elastic.agent.server import api
from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

from rekindle.keeper.torchrun.node_plan import NodePlan
from rekindle.keeper.torchrun.store_server import HOST, start_owner_server, start_store_server

_BACKEND = "rekindle"
_IDENTICAL = "TORCH_ELASTIC_WORKER_IDENTICAL"  # torch's: ranks are numbered without the agents' store


class FixedRendezvous(RendezvousHandler):
    """The rendezvous of one node, complete at once: nobody joins an attempt later, as the keeper starts another."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        if parameters.max_nodes != 1:
            raise ValueError(f"an attempt runs on one node, not on {parameters.max_nodes}")
        self._run_id = parameters.run_id

    def get_backend(self) -> str:
        return _BACKEND

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Called once: torchrun restarts nothing."""
        return RendezvousInfo(HashStore(), 0, 1, RendezvousStoreInfo(HOST, start_store_server()))

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """Nobody else could join."""

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        """The store is served until the agent ends: a rank may still be reading from it."""
        return True


class NodeRendezvous(FixedRendezvous):
    """One node among those of the attempt, which the plan names: agents neither wait for nor talk to each other."""

    def __init__(self, parameters: RendezvousParameters, await_plan: Callable[[], NodePlan]) -> None:
        super().__init__(parameters)
        self._await_plan = await_plan

    def next_rendezvous(self) -> RendezvousInfo:
        plan = self._await_plan()
        if plan.secret and plan.node > 0:
            start_owner_server(plan)
        os.environ[_IDENTICAL] = "1"
        store = RendezvousStoreInfo(plan.store_host, plan.store_port)
        return RendezvousInfo(HashStore(), plan.node, plan.nodes, store)


def configure_rendezvous(arguments: Namespace, await_plan: Callable[[], NodePlan] | None = None) -> None:
    """Have torchrun use it, whatever its parsed command line names.

    ``await_plan``: for an agent of a cluster; it returns once the attempt begins.
    """
    if await_plan is None:
        rendezvous_handler_registry.register(_BACKEND, FixedRendezvous)
    else:
        rendezvous_handler_registry.register(_BACKEND, lambda parameters: NodeRendezvous(parameters, await_plan))
        api.SimpleElasticAgent._exit_barrier = _end_with_own_ranks  # type: ignore[method-assign]
        api._get_fq_hostname = socket.gethostname  # of its events: each attempt would wait for a lost name server
    arguments.rdzv_backend, arguments.rdzv_endpoint = _BACKEND, f"{HOST}:0"


def _end_with_own_ranks(_: api.SimpleElasticAgent) -> None:
    """Instead of waiting 300 seconds for the agents of the other nodes: the coordinator waits for all ranks."""


class UnnumberedLogs(LogsSpecs):
    """``logs``, whose ranks do not inherit what ``NodeRendezvous`` has set for torchrun."""

    def __init__(self, logs: LogsSpecs) -> None:
        super().__init__()
        self._logs = logs

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Called right before the ranks start."""
        os.environ.pop(_IDENTICAL, None)
        return self._logs.reify(envs)

    @property
    def root_log_dir(self) -> str:
        return self._logs.root_log_dir
