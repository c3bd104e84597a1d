"""What all ranks do at the same step boundary, though each learns of the reasons at another moment."""

from dataclasses import astuple, dataclass

import torch
import torch.distributed as dist

from rekindle.training.process_group import World


@dataclass(frozen=True, slots=True)
class StepFlags:
    """What is to follow a step. Of one rank: what it requests; one request is enough."""

    drain: bool = False
    snapshot: bool = False
    shm: bool = False  # a snapshot in shared memory
    flush: bool = False  # gather what was logged
    writing: bool = False  # no request: the snapshot before is still being written

    def __or__(self, other: "StepFlags") -> "StepFlags":
        return StepFlags(*(one or another for one, another in zip(astuple(self), astuple(other), strict=True)))


class FlagAllReduce:
    """One small all-reduce a step, which runs while the step is computed, so that no rank waits for it.

    The price is that a request made during a step takes effect at the end of the next one.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._flags = torch.zeros(len(astuple(StepFlags())), dtype=torch.int32)
        self._work: dist.Work | None = None

    def start(self, own: StepFlags) -> None:
        """All ranks must call it, in the same order, after ``wait`` for the one before."""
        self._flags.copy_(torch.tensor(astuple(own)))
        self._work = dist.all_reduce(self._flags, dist.ReduceOp.MAX, group=self._world.control, async_op=True)

    def wait(self) -> StepFlags:
        """The flags of all ranks together; none is set where nothing was started."""
        if self._work is None:
            return StepFlags()
        self._work.wait()
        self._work = None
        return StepFlags(*map(bool, self._flags.tolist()))
