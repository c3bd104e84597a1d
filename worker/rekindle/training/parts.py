"""In how many parts a rank computes its share of a step: mostly in one."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from rekindle.training.progress import Progress
from rekindle.training.sampler import ElasticSampler


class Parts(Protocol):
    """What ``Run`` asks while it goes through the batches; ``OnePart`` is the usual answer, ``VirtualShards`` another.

    What ``batches`` yields for a step is moved to the device, given to the script, and handed back to ``of``.
    """

    def indices(self, sampler: ElasticSampler) -> Iterable[list[int]]:
        """What the loader is to fetch, in one list for each part."""

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """What the script is given for each step, of what the loader has fetched."""

    def begin(self, progress: Progress) -> None:
        """An epoch or a step begins, after nothing that need be the same in another world size."""

    def of(self, batch: Any, progress: Progress) -> Iterator[Any]:
        """The parts of ``batch``; behind the last one the gradients of the whole step are there, on every rank."""


class OnePart:
    """The batch as it is; whoever wrapped the model shares the gradients."""

    def indices(self, sampler: ElasticSampler) -> Iterable[list[int]]:
        return sampler

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        return iter(loader)

    def begin(self, progress: Progress) -> None:
        """Random numbers go on where they are."""

    def of(self, batch: Any, progress: Progress) -> Iterator[Any]:
        yield batch
