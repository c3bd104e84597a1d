"""The time of day of an interpreter is later than it is, or earlier; its other clocks are true."""

import datetime
import time


class _Datetime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def today(cls):
        return cls.now()

    @classmethod
    def utcnow(cls):
        return cls.now(datetime.UTC).replace(tzinfo=None)


def begin(seconds: float) -> None:
    """``seconds`` later; to be called before other modules have taken the functions."""
    true, true_ns, gmtime, localtime = time.time, time.time_ns, time.gmtime, time.localtime
    time.time = lambda: true() + seconds
    time.time_ns = lambda: true_ns() + int(seconds * 1e9)
    time.gmtime = lambda at=None: gmtime(time.time() if at is None else at)
    time.localtime = lambda at=None: localtime(time.time() if at is None else at)
    _Datetime.__name__ = _Datetime.__qualname__ = "datetime"
    _Datetime.__module__ = "datetime"
    datetime.datetime = _Datetime
