"""What all ranks do at the same step boundary, though each learns of the reasons at another moment."""

from dataclasses import astuple, dataclass

import torch
import torch.distributed as dist

from rekindle.training.process_group import World


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to follow a step. As a vote: what one rank asks for; one vote is enough."""

    drain: bool = False
    snapshot: bool = False
    copy: bool = False  # a snapshot in memory
    flush: bool = False  # gather what was logged
    writing: bool = False  # not a wish: the snapshot before is still being written

    def __or__(self, other: "Decision") -> "Decision":
        return Decision(*(one or another for one, another in zip(astuple(self), astuple(other), strict=True)))


class Agreement:
    """One small all-reduce a step, under way while the step is computed, so that nobody waits for it.

    The price is that a wish voiced during a step is heard at the end of the next one.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._votes = torch.zeros(len(astuple(Decision())), dtype=torch.int32)
        self._under_way: dist.Work | None = None

    def begin(self, vote: Decision) -> None:
        """Start asking. All ranks must, in the same order; an earlier question must be settled."""
        self._votes.copy_(torch.tensor(astuple(vote)))
        self._under_way = dist.all_reduce(self._votes, dist.ReduceOp.MAX, group=self._world.control, async_op=True)

    def settle(self) -> Decision:
        """Wait for the answer; where nothing was asked, nothing is to be done."""
        if self._under_way is None:
            return Decision()
        self._under_way.wait()
        self._under_way = None
        return Decision(*map(bool, self._votes.tolist()))

    def ask(self, vote: Decision) -> Decision:
        """``begin`` and ``settle`` in one."""
        self.begin(vote)
        return self.settle()
