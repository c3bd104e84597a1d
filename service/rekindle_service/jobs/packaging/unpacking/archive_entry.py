"""One entry of an archive of either kind, and why an archive is refused."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import IO

CHUNK = 1 << 20
HEADER_BYTES = 4096  # of one entry of an archive, long names included


class UnpackingError(Exception):
    """The archive cannot be taken as it is; ``rule`` and ``hint`` say why and what helps."""

    def __init__(self, rule: str, hint: str) -> None:
        super().__init__(f"{rule}; {hint}")
        self.rule = rule
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Limits:
    """What an archive may become."""

    bytes: int
    entries: int


class Kind(Enum):
    FILE = auto()
    FOLDER = auto()
    LINK = auto()
    OTHER = auto()  # devices, FIFOs, hard links: nothing that code consists of


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    kind: Kind
    executable: bool
    link: Callable[[], str]
    open: Callable[[], IO[bytes]]


def too_big(limits: Limits) -> UnpackingError:
    hint = "keep data outside the archive and give the script its path"
    return UnpackingError(f"at most {limits.bytes // 1_000_000} MB when unpacked", hint)


def too_many(limits: Limits) -> UnpackingError:
    return UnpackingError(f"at most {limits.entries} entries", "keep data outside the archive")
