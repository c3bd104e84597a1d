"""The server's log: one JSON object a line on standard error, from the server and its libraries alike."""

import json
import logging
import os
import select
import sys
import threading
from contextlib import suppress
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

_TIMEOUT = 1000  # milliseconds that a line waits for a reader which is slow
_TO_JSON = structlog.processors.JSONRenderer()


def _render(logger: WrappedLogger, method: str, fields: EventDict) -> str | bytes:
    """Never raises: a value of ``fields`` may be anything that has just failed."""
    try:
        return _TO_JSON(logger, method, fields)
    except Exception as error:  # noqa: BLE001 - whatever a value's own code raises
        shown = {"event": str(fields.get("event")), "level": method, "error": f"not shown: {type(error).__name__}"}
        return json.dumps(shown)


_METADATA: tuple[Processor, ...] = (structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso"))
_AS_JSON: tuple[Processor, ...] = (structlog.processors.format_exc_info, _render)


def configure_logging() -> None:
    """Text of a job or a request can forge no line; libraries log warnings and errors only.

    Tracebacks have no local variables, since tokens and cookies are among them. Nothing that is logged raises.
    """
    fd = os.open(os.devnull, os.O_WRONLY) if sys.__stderr__ is None else 2  # what was closed may be another file by now
    stream = cast("TextIO", _UnfailingStream(fd))
    structlog.configure(processors=[*_METADATA, *_AS_JSON], logger_factory=structlog.PrintLoggerFactory(stream))
    of_libraries = logging.StreamHandler(stream)
    of_libraries.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_METADATA,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_AS_JSON],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[of_libraries])


class _UnfailingStream:
    """Writes whole lines to a descriptor, and drops those that it does not take: a full disk, a reader that is stuck.

    What writes a line is often the handling of another error, and never has anything to do with the log.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._pending = b""  # a line that is not complete yet
        self._dropped = 0  # lines since one was written
        self._is_torn = False  # the latest line was written in part only

    def write(self, text: str) -> int:
        with self._lock:
            lines = (self._pending + text.encode(errors="backslashreplace")).splitlines(keepends=True)
            self._pending = b"" if not lines or lines[-1].endswith(b"\n") else lines.pop()
            for line in lines:
                self._write_line(line)
        return len(text)

    def flush(self) -> None:
        """Nothing is held back but the beginning of a line."""

    def _write_line(self, line: bytes) -> None:
        if self._dropped:
            notice = {"event": f"{self._dropped} lines of this log could not be written", "level": "warning"}
            line = b"\n" * self._is_torn + json.dumps(notice).encode() + b"\n" + line
        written = self._write_some(line, 0 if self._dropped else _TIMEOUT)
        if written == len(line):
            self._dropped, self._is_torn = 0, False
        else:
            self._dropped += 1
            self._is_torn = self._is_torn or written > 0

    def _write_some(self, data: bytes, timeout: int) -> int:
        """Bytes that were written; ``timeout`` is in milliseconds for each part."""
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        written = 0
        with suppress(OSError):
            while written < len(data) and poll.poll(timeout):
                written += os.write(self._fd, data[written : written + select.PIPE_BUF])
        return written


def fields_of(error: BaseException) -> dict[str, object]:
    """How a log line shows ``error``: the machine's own (a full disk, no descriptors) needs no traceback."""
    return {"error": str(error)} if isinstance(error, OSError) else {"exc_info": error}
