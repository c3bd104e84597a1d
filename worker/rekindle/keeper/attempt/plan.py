"""What is decided about an attempt before it starts."""

from collections.abc import Callable
from dataclasses import dataclass, field

from rekindle.contract.job import JobSpec
from rekindle.keeper.attempt_result import Ending
from rekindle.keeper.event_loop import Events
from rekindle.keeper.hangs.stall import LONG_TIMEOUT
from rekindle.keeper.torchrun.node_plan import NodePlan


@dataclass(frozen=True, slots=True)
class AttemptPlan:
    """Plan of an attempt on one machine, on all nodes of a cluster, or on one of them, which then has ``node``."""

    spec: JobSpec
    number: int
    world_size: int
    gpus: list[str]  # as in CUDA_VISIBLE_DEVICES
    environment: dict[str, str]  # of its ranks, in addition to the keeper's own
    deadline: float | None  # seconds of CLOCK_MONOTONIC: the job's time limit
    log_bytes: int | None  # that each log may take
    requested_stop: Callable[[Events], Ending | None]  # called after every wait
    node: NodePlan | None = None  # of a job on a cluster: which of the ranks run on this machine
    hosts: list[str] = field(default_factory=list)  # of a job on a cluster, in the order of its nodes
    long_timeout: float = LONG_TIMEOUT  # seconds for which ranks may wait for what may end

    @property
    def ranks(self) -> range:
        """The ranks of this machine."""
        first = 0 if self.node is None else self.node.first_rank()
        return range(first, first + (self.world_size if self.node is None else self.node.ranks_per_node))
