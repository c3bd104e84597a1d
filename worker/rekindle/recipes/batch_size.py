"""How many samples a step has: of all ranks together, and of each; never one number that might mean either."""

from dataclasses import dataclass

from rekindle.recipes.options import Options
from rekindle.training.data.sample_order import batch_sizes


@dataclass(frozen=True, slots=True)
class BatchSize:
    """``growth`` is how many times larger the batch is than that of one rank alone would be."""

    of_all: int
    sharers: int
    growth: int

    @classmethod
    def choose(cls, options: Options, sharers: int, *, default: int = 128) -> "BatchSize":
        """``sharers`` ranks divide the batch among them; 1 where all work on the same samples.

        ``default`` is the batch of all ranks where the user says nothing.
        """
        if options.batch_size_per_rank is not None:
            return cls(options.batch_size_per_rank * sharers, sharers, growth=sharers)
        return cls(options.batch_size or default, sharers, growth=1)

    def samples_in_last(self, steps: int, length: int) -> int:
        """Of all ranks, in the last ``steps`` batches of an epoch of ``length`` samples; batches differ in size."""
        sizes = batch_sizes(length, self.of_all)
        return sum(sizes[max(0, len(sizes) - steps) :])

    def __str__(self) -> str:
        if self.sharers == 1:
            return f"batch {self.of_all}, not divided"
        least, rest = divmod(self.of_all, self.sharers)
        each = f"{least} or {least + 1}" if rest else f"{least}"
        return f"batch of all ranks {self.of_all} = {self.sharers} ranks x {each}"
