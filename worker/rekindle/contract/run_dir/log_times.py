"""When the bytes of the ranks' logs came, as their keeper has seen the files grow."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from rekindle.contract.job import MAX_RANKS
from rekindle.contract.run_dir.paths import STREAMS

_MAX_SIZE = 1 << 53  # bytes
_MAX_TIME = 1e11  # seconds


class LogName(NamedTuple):
    """One log of an attempt; the order is that in which logs are shown that grew at the same time."""

    rank: int
    stream: str


@dataclass(frozen=True, slots=True)
class LogSizes:
    """One line of ``AttemptDir.log_times``: the logs that have grown since the line before.

    A byte came at the time of the first line in which its log is larger than the byte's offset. The order of the lines
    is that of the events, also where the clock was set back between two of them.
    """

    at: float  # seconds since the epoch
    sizes: Mapping[LogName, int]  # bytes

    def to_json(self) -> dict[str, Any]:
        """Short, since it is written several times a second: ``{"at": 1.25, "logs": [[rank, stream, bytes], …]}``."""
        logs = [[name.rank, STREAMS.index(name.stream), size] for name, size in sorted(self.sizes.items())]
        return {"at": round(self.at, 3), "logs": logs}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Raises ValueError where ``value`` is not what ``to_json`` makes."""
        at, logs = value.get("at"), value.get("logs")
        if not isinstance(at, int | float) or not 0 <= at < _MAX_TIME or not isinstance(logs, list):
            raise ValueError("at must be a time, logs a list")
        return cls(float(at), dict(_size(log) for log in logs))


def _size(log: Any) -> tuple[LogName, int]:
    match log:
        case [int(rank), int(stream), int(size)] if (
            0 <= rank < MAX_RANKS and 0 <= stream < len(STREAMS) and 0 <= size <= _MAX_SIZE
        ):
            return LogName(rank, STREAMS[stream]), size
    raise ValueError(f"{str(log)[:100]} must be [rank, stream, bytes]")


def valid_sizes(lines: Iterable[tuple[int, dict[str, Any]]]) -> Iterator[LogSizes]:
    """Of ``json_lines``; lines that are not the keeper's are skipped."""
    for _, line in lines:
        with suppress(ValueError):
            yield LogSizes.from_json(line)
