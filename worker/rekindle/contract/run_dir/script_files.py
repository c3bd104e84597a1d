"""What is learned about a script that reports nothing: the files that it writes and loads, and what it prints.

``files.jsonl`` of a rank names where it writes; ``observed.json`` of the run is what the keeper makes of that.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Annotated, BinaryIO

from rekindle.contract.run_dir.json_records import Amount, Count, JsonRecord, Line, PathText, Range, read_record
from rekindle.contract.run_dir.paths import RunDir

MAX_CHECKPOINTS = 100  # that the keeper remembers, the latest ones
MAX_LISTED = 20  # of these, the latest ones

_EPOCH = re.compile(r"(?<![a-z])(?:epoch|ep)[-_=]?(\d{1,9})(?!\d)", re.I)
_STEP = re.compile(r"(?<![a-z])(?:(?:global_?)?step|iter|iteration)[-_=]?(\d{1,9})(?!\d)|^checkpoint-(\d{1,9})$", re.I)
_NUMBER = re.compile(r"\d{1,18}")
ZIP, _ZIP_END = b"PK\x03\x04", b"PK\x05\x06"  # first bytes of a file of ``torch.save``, and of its end
_ZIP_END_SIZE = 22  # bytes: torch writes no comment after it
_VARYING = re.compile(r"(?<=tmp)[a-z0-9_]{8}|\d+")


class FileUse(StrEnum):
    """What a rank did with a file."""

    TRACKED = "tracked"  # the first line: from here on nothing is missed
    WRITTEN = "written"  # opened for writing; the first of all files of its pattern in its directory
    RENAMED = "renamed"  # ``source`` got the name ``path``: a file or a whole directory
    LOADED = "loaded"  # a known checkpoint was opened for reading
    SPAWNED = "spawned"  # another program was started, whose files nobody tracks


@dataclass(frozen=True, slots=True)
class FileRecord(JsonRecord):
    """One line of ``files.jsonl``; paths are absolute."""

    use: FileUse
    path: str
    at: float  # seconds since the epoch
    source: str | None = None


@dataclass(slots=True)
class Checkpoint(JsonRecord):
    """A checkpoint that the script itself wrote, or that was there before it: a file, or a directory of files."""

    path: PathText
    kind: Line  # "torch", "safetensors", "sharded" (torch.distributed.checkpoint), or "file" of any other format
    bytes: Count
    written_at: float  # seconds since the epoch
    attempt: int  # that wrote it last; 0 = it was there before the first one
    complete: bool = True  # as far as its format shows
    loaded: int | None = None  # the latest attempt that loaded it
    lacks: str | None = None  # pattern of a file that the directory lacks and the one before has
    files: list[str] = field(default_factory=list)  # names below ``path`` where that is a directory
    step: Count | None = None
    epoch: Count | None = None
    estimated: bool = False  # step and epoch are those that were printed last before it was found

    @property
    def age_order(self) -> tuple[float, list[int]]:
        """A key that is greater for newer ones: in the same tick of the clock by the numbers in the path."""
        return self.written_at, [int(number) for number in _NUMBER.findall(self.path)]

    def paths(self) -> list[str]:
        """Paths of all files of the checkpoint."""
        return [f"{self.path}/{name}" for name in self.files] or [self.path]


@dataclass(slots=True)
class Observations(JsonRecord):
    """Content of ``observed.json``, replaced whole by the keeper. Estimates come from printed lines of ``attempt``."""

    attempt: int = 0
    ended: bool = False  # of ``attempt``: what is incomplete now stays so
    checkpoints: list[Checkpoint] = field(default_factory=list)  # latest first, a bounded number
    temporary: list[str] = field(default_factory=list)  # patterns of names that are renamed when they are whole
    saves_without_loading: bool = False  # ``attempt`` has saved, and loaded none of the checkpoints that it found
    estimated_step: Count | None = None
    estimated_epoch: Count | None = None
    estimated_progress: Annotated[float, Range(0, 1)] | None = None
    estimated_seconds_left: Amount | None = None

    def saved_by(self, attempt: int) -> list[Checkpoint]:
        """The complete checkpoints that ``attempt`` wrote."""
        return [each for each in self.checkpoints if each.attempt == attempt and each.complete]


def own_checkpoints(run_dir: RunDir) -> list[Checkpoint]:
    """The complete checkpoints that attempts of this job have written and that still exist, the latest first."""
    observed = read_record(run_dir.observed, Observations) or Observations()
    own = [each for each in observed.checkpoints if each.complete and each.attempt and Path(each.path).exists()]
    return sorted(own, key=lambda each: each.age_order, reverse=True)


def is_unchanged(checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint is still there as it was found; of a directory, whether it is there. Raises OSError."""
    try:
        stat = Path(checkpoint.path).lstat()
    except FileNotFoundError:
        return False
    if checkpoint.files:
        return S_ISDIR(stat.st_mode)
    return S_ISREG(stat.st_mode) and (stat.st_size, stat.st_mtime_ns / 1e9) == (
        checkpoint.bytes,
        checkpoint.written_at,
    )


def ends_zip(file: BinaryIO, size: int) -> bool:
    """Whether a file of ``torch.save`` is complete, which begins with ``ZIP`` and has ``size`` bytes."""
    file.seek(max(0, size - _ZIP_END_SIZE))
    return file.read(4) == _ZIP_END


def previous_path(path: str) -> str:
    """Where the complete checkpoint is that a script overwrites in place, until the end of the attempt."""
    directory, _, name = path.rpartition("/")
    return f"{directory}/.{name}.previous"


def name_pattern(name: str) -> str:
    """A pattern that all checkpoints of a script share, such as ``epoch=3.ckpt`` and ``epoch=14.ckpt``."""
    return _VARYING.sub("#", name)


def position_in_name(path: str) -> dict[str, int]:
    """The step and the epoch that the last name in ``path`` states, such as ``epoch=3-step=1200.ckpt``."""
    name = path.rpartition("/")[2]
    found = {"epoch": _EPOCH.search(name), "step": _STEP.search(name)}
    return {kind: int(match[match.lastindex or 0]) for kind, match in found.items() if match is not None}


def shown_path(path: str, code: Path) -> str:
    """Make ``path`` relative to ``code``, the script's working directory, where it is in it."""
    prefix = f"{code}/"
    return path.removeprefix(prefix)
