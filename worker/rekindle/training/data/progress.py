"""How far a training is: its step, its epoch, and the current batch."""

from dataclasses import dataclass, field
from typing import Any

from rekindle.training.data.sampler import ElasticSampler

Position = tuple[int, int, bool]
"""Distinguishes two states of a training: step, epoch, and whether it is within the epoch or after it."""


@dataclass(slots=True)
class Progress:
    """Counts the same on every rank; ``samples`` alone is this rank's own."""

    step: int = 0  # finished steps, all attempts together
    epoch: int = 0  # the current one, or the next
    epochs: int = 0  # in total
    sampler: ElasticSampler | None = None  # of the current epoch
    samples: tuple[int, int] = (1, 1)  # samples of the current batch: this rank's, all ranks'
    in_step: bool = False
    _interrupted: dict[str, Any] | None = field(default=None, repr=False)  # the sampler's state, to resume from

    @property
    def resumes_epoch(self) -> bool:
        """The restored epoch is to be continued, and its batches have not begun."""
        return self._interrupted is not None

    @property
    def position(self) -> Position:
        return self.step, self.epoch, self.sampler is not None or self.resumes_epoch

    def state_dict(self) -> dict[str, Any]:
        """The step is not in it: it is the snapshot's own name."""
        sampler = self._interrupted if self.sampler is None else self.sampler.state_dict()
        return {"epoch": self.epoch, "sampler": sampler}

    def restore(self, step: int, state: dict[str, Any]) -> None:
        self.step, self.epoch, self._interrupted = step, state["epoch"], state["sampler"]

    def begin_batches(self, sampler: ElasticSampler) -> int:
        """Begin or resume the epoch's batches; returns the steps that the whole training will have taken.

        Raises RuntimeError outside of an epoch, or where its batches have begun already.
        """
        if self.sampler is not None or self.epoch >= self.epochs:
            raise RuntimeError(
                "run.batches is called once in each epoch of `for epoch in run.epochs(n)`; for a second loop over "
                "other data use a DataLoader with an ElasticSampler of its own"
            )
        sampler.set_epoch(self.epoch)
        steps_per_epoch = len(sampler)
        if self._interrupted is not None:
            sampler.load_state_dict(self._interrupted)
            self._interrupted = None
        self.sampler = sampler
        return self.step + len(sampler) + (self.epochs - self.epoch - 1) * steps_per_epoch

    def begin_step(self, sampler: ElasticSampler) -> None:
        self.samples, self.in_step = sampler.next_sizes(), True

    def end_step(self, sampler: ElasticSampler) -> None:
        sampler.advance()
        self.step += 1
        self.in_step, self.samples = False, (1, 1)

    def end_epoch(self) -> int:
        """Returns the epoch that has ended."""
        self.epoch, self.sampler = self.epoch + 1, None
        return self.epoch - 1

    @property
    def finished(self) -> bool:
        """No epoch is left."""
        return self.epoch >= self.epochs
