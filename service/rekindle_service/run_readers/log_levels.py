"""How serious a line of a log is, by the words of logging libraries and of Python's tracebacks."""

import re
from enum import StrEnum

_HEAD = 200  # characters of a line in which its level is looked for
_ERROR = (
    r"\b(?:CRITICAL|FATAL|ERROR|Fatal Python error|Traceback \(most recent call last\)|[A-Z]\w*(?:Error|Exception):)"
)
_WARNING = r"\b(?:WARN|WARNING|[A-Z]\w*Warning:)|^\[W\d{4} "
_DEBUG = r"\b(?:DEBUG|TRACE)\b"
_PATTERNS = [(re.compile(_ERROR), "error"), (re.compile(_WARNING), "warning"), (re.compile(_DEBUG), "debug")]


class LogLevel(StrEnum):
    """Ascending; a line without a word of its level counts as information."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    def includes(self, level: "LogLevel") -> bool:
        """Whether a filter that shows this level and what is more serious shows ``level``."""
        return _ORDER[level] >= _ORDER[self]


_ORDER = {level: index for index, level in enumerate(LogLevel)}


def level_of(text: str) -> LogLevel:
    """The most serious level that the beginning of a line names."""
    head = text[:_HEAD]
    return next((LogLevel(level) for pattern, level in _PATTERNS if pattern.search(head)), LogLevel.INFO)
