"""The checks of `rekindle doctor`: each returns what it found and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"  # it works, but not as well or as safely as it could
    PROBLEM = "problem"  # it does not work, or work is in danger


@dataclass(frozen=True, slots=True)
class Finding:
    """``advice`` is what to do, and empty where there is nothing to do."""

    name: str
    level: Level
    detail: str
    advice: str = ""


def ok(name: str, detail: str) -> Finding:
    return Finding(name, Level.OK, detail)


def warning(name: str, detail: str, advice: str) -> Finding:
    return Finding(name, Level.WARNING, detail, advice)


def problem(name: str, detail: str, advice: str) -> Finding:
    return Finding(name, Level.PROBLEM, detail, advice)


def at_least(name: str, value: float, *, enough: float, minimum: float, detail: str, advice: str) -> Finding:
    """A problem below ``minimum``, a warning below ``enough``."""
    if value >= enough:
        return ok(name, detail)
    return (problem if value < minimum else warning)(name, detail, advice)
