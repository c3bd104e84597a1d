"""JSON of log lines and of when they were written."""

from pydantic import RootModel

from rekindle_service.api.schemas.common import ApiModel
from rekindle_service.run_readers.merged_log import TimedLine


class LogLines(ApiModel):
    """Lines of several logs of an attempt, in the order in which they were written."""

    attempt: int
    """Number of the attempt."""
    items: list[TimedLine]
    """Lines in order."""
    next: str | None
    """Cursor for `after`: the lines that follow; null where nothing was read."""
    previous: str | None
    """Cursor for `before`: the lines before these; null where nothing was read."""
    complete: bool
    """Whether nothing more follows in the direction of reading, at present."""
    ended: bool
    """Whether the attempt has ended, so that nothing more will be written."""
    has_times: bool
    """False where nobody has recorded when the lines were written: they are in the order of ranks and streams."""
    unfinished: list[TimedLine]
    """Last line of each log that has no line break yet, as far as it was written; only where `complete` is true."""


class LogTime(RootModel[tuple[int, float]]):
    """Offset of a byte, and seconds since the epoch."""


class LogTimesPublic(ApiModel):
    """When the bytes of one log were written."""

    attempt: int
    """Number of the attempt."""
    rank: int
    """Global rank."""
    stream: str
    """`stdout` or `stderr`."""
    items: list[LogTime]
    """Pairs of an offset and seconds since the epoch: the bytes from the offset before up to this one were written
    then. Empty where nobody has recorded it."""
