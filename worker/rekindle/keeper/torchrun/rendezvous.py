"""The rendezvous of an attempt, whose members are known before it starts: torchrun's own is open to all, and unpickles.

torchrun asks a backend for it by name. Its agents share a store to number their ranks: with one node that is an object
in memory. The ranks share another, which the agent serves to processes of the same user.
"""

from argparse import Namespace

from torch.distributed import HashStore  # type: ignore[attr-defined]  # which is public all the same
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

from rekindle.keeper.torchrun.store_server import HOST, start_store_server

_BACKEND = "rekindle"


class FixedRendezvous(RendezvousHandler):
    """Of one node, which is complete at once. Nobody joins an attempt later: the keeper starts another instead."""

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


def configure_rendezvous(arguments: Namespace) -> None:
    """Have torchrun use it, whatever its parsed command line names: that of a keeper of version 0.1 names c10d."""
    rendezvous_handler_registry.register(_BACKEND, FixedRendezvous)
    arguments.rdzv_backend, arguments.rdzv_endpoint = _BACKEND, f"{HOST}:0"
