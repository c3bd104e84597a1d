"""How often a job has failed so far: the keeper passes it to the ranks, which choose the snapshot interval by it."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class FailureStats:
    """Of all attempts that are over; ``seconds`` is how long their ranks have run, all attempts together."""

    count: int = 0
    seconds: float = 0.0

    def to_text(self) -> str:
        return f"{self.count} {self.seconds:.1f}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Nothing has failed where ``text`` is not what ``to_text`` makes."""
        try:
            count, seconds = text.split()
            return cls(int(count), float(seconds))
        except ValueError:
            return cls()
