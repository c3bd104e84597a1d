"""JSON of log lines and of when they came."""

from pydantic import BaseModel, RootModel

from rekindle_service.run_readers.merged_log import TimedLine


class LogLines(BaseModel):
    """Lines of several logs of an attempt, in the order in which they came.

    `next` and `previous` are cursors for `after` and `before`, null where nothing was read. `complete`: nothing more
    follows in the direction of reading, at present; `ended`: and nothing will. `has_times` is false where nobody has
    recorded when the lines came: they are in the order of ranks and streams. `unfinished`: of each log the last line,
    as far as it was written, where it has no end yet; only in answers that are complete.
    """

    attempt: int
    items: list[TimedLine]
    next: str | None
    previous: str | None
    complete: bool
    ended: bool
    has_times: bool
    unfinished: list[TimedLine]


class LogTime(RootModel[tuple[int, float]]):
    """Offset of a byte, and seconds since the epoch."""


class LogTimesPublic(BaseModel):
    """When the bytes of one log came: pairs of an offset and seconds since the epoch.

    Bytes from the offset before up to this one came then; `items` is empty where nobody has recorded it.
    """

    attempt: int
    rank: int
    stream: str
    items: list[LogTime]
