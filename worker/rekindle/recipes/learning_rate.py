"""The learning rate of every step: a function of step and epoch alone, so there is nothing to save for a resume."""

import math
from dataclasses import dataclass

from rekindle.recipes.options import Options

_FALL = 0.1  # at each of --lr-steps


@dataclass(frozen=True, slots=True)
class LearningRate:
    """``full`` is reached after ``warmup_steps``; then it falls at ``falls_at`` or, without those, as a cosine does."""

    full: float
    warmup_steps: int
    falls_at: tuple[int, ...]
    epochs: int

    @classmethod
    def choose(cls, options: Options, growth: int) -> "LearningRate":
        """``growth``: how many times the batch is larger than that of one rank, which ``options.lr`` is meant for."""
        factor = {"none": 1.0, "linear": float(growth), "sqrt": math.sqrt(growth)}[options.lr_rule]
        return cls(options.lr * factor, options.warmup_steps, options.lr_steps, options.epochs)

    def at(self, step: int, epoch: int) -> float:
        """``step`` and ``epoch`` count from 0."""
        return self.full * self._warmth(step) * self._decay(epoch)

    def _warmth(self, step: int) -> float:
        return min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps > 0 else 1.0

    def _decay(self, epoch: int) -> float:
        if self.falls_at:
            return float(_FALL ** sum(epoch >= fall for fall in self.falls_at))
        return (1 + math.cos(math.pi * epoch / self.epochs)) / 2
