"""The server's log: one JSON object a line on standard error, whoever has something to say."""

import logging
import sys

import structlog
from structlog.typing import Processor

_ABOUT: tuple[Processor, ...] = (structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso"))
_AS_JSON: tuple[Processor, ...] = (structlog.processors.format_exc_info, structlog.processors.JSONRenderer())


def configure_logging() -> None:
    """What a job or a request says can forge no line, nor show a secret; libraries are heard from warnings on.

    Tracebacks come without local variables, among which are tokens and cookies.
    """
    structlog.configure(
        processors=[*_ABOUT, *_AS_JSON],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    of_libraries = logging.StreamHandler(sys.stderr)
    of_libraries.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_ABOUT,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_AS_JSON],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[of_libraries])
