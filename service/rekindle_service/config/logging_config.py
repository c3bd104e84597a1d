"""The server's log: one JSON object a line on standard error, from the server and its libraries alike."""

import logging
import sys

import structlog
from structlog.typing import Processor

_METADATA: tuple[Processor, ...] = (structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso"))
_AS_JSON: tuple[Processor, ...] = (structlog.processors.format_exc_info, structlog.processors.JSONRenderer())


def configure_logging() -> None:
    """Text of a job or a request can forge no line; libraries log warnings and errors only.

    Tracebacks have no local variables, since tokens and cookies are among them.
    """
    structlog.configure(processors=[*_METADATA, *_AS_JSON], logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    of_libraries = logging.StreamHandler(sys.stderr)
    of_libraries.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_METADATA,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_AS_JSON],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[of_libraries])


def fields_of(error: BaseException) -> dict[str, object]:
    """How a log line shows ``error``: the machine's own (a full disk, no descriptors) needs no traceback."""
    return {"error": str(error)} if isinstance(error, OSError) else {"exc_info": error}
