"""The process group of a recipe: joined before the model is built, since some methods divide the model first."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from rekindle.contract.environment import RankEnv
from rekindle.training import process_group
from rekindle.training.drain import Drained
from rekindle.training.process_group import World
from rekindle.training.reporting.reporter import reporter


@contextmanager
def joined() -> Iterator[World]:
    """This rank among the others; ``Run`` uses the group that is joined here."""
    world = process_group.join(RankEnv.read(os.environ), reporter().device_kind or "auto")
    try:
        yield world
    except BaseException as error:
        if isinstance(error, Drained):
            process_group.leave(world)
        else:
            process_group.abort(world)
        raise
    process_group.leave(world)


def require_one_rank(world: World, recipe: str) -> None:
    """Raises ValueError for more: each would train the whole data set for itself."""
    if world.size > 1:
        raise ValueError(
            f"recipe {recipe} is one process, and {world.size} ranks were started: start one, or use recipe ddp"
        )
