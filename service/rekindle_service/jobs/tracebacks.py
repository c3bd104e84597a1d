"""A traceback, which a job may have written as it likes: to its frames, and where a log has it."""

import os.path
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.rank_traces import Frame
from rekindle_service.run_readers.log_files import read_end

MARKER = "Traceback (most recent call last):"
_FRAME = re.compile(r'^[ |+]*File "(?P<file>.*)", line (?P<line>\d{1,9})(?:, in (?P<function>.*))?$')
_REPEATED = re.compile(r"^[ |]*\[Previous line repeated (\d{1,9}) more times?\]$")
_LIBRARIES = {"site-packages", "dist-packages"}


@dataclass(frozen=True, slots=True)
class RaisedFrame(Frame):
    """A frame with the line of code that the traceback quotes; "" where it quotes none."""

    quoted: str = ""


@dataclass(frozen=True, slots=True)
class Traceback:
    """``frames`` are innermost first; ``repeated`` more were the same as those before them."""

    frames: list[RaisedFrame]
    repeated: int = 0


def parse_traceback(text: str, code: Path) -> Traceback:
    """The frames of the exception that ended the script.

    Of an exception that quotes another process's traceback those of the quoted one count, since that is what failed; of
    those that have no frame in the user's ``code``, the last one.
    """
    blocks = [_parse(block) for block in text.split(MARKER)[-_MAX_BLOCKS:]]
    found = [block for block in blocks if block.frames]
    own = [block for block in found if any(relative_to_code(frame.file, code) for frame in block.frames)]
    return (own or found or [Traceback([])])[-1]


_MAX_BLOCKS = 100  # of exceptions that caused each other


def _parse(block: str) -> Traceback:
    frames: list[RaisedFrame] = []
    repeated = 0
    lines = block.split("\n")
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if match := _FRAME.match(line):
            quoted = "" if _FRAME.match(following) or not following.startswith("    ") else following.strip()
            frames.append(RaisedFrame(match["file"], int(match["line"]), match["function"] or "", quoted))
        elif match := _REPEATED.match(line):
            repeated += int(match[1])
    return Traceback(frames[::-1], repeated)


def relative_to_code(file: str, code: Path) -> str | None:
    """``file`` relative to the job's ``code``; None where it is not in it, or belongs to a library that is.

    By the text of the path alone: nothing is looked up, wherever a job says that its file is.
    """
    if not file.startswith("/") or "\0" in file:
        return None
    path = Path(os.path.normpath(file))
    for root in (code, code.resolve()):
        if path.is_relative_to(root):
            relative = path.relative_to(root)
            return None if _LIBRARIES & set(relative.parts) or not relative.parts else str(relative)
    return None


def user_frames_first(frames: Sequence[Frame], code: Path, limit: int) -> list[Frame]:
    """The first ``limit`` frames: those in ``code``, which a person can change, then libraries', innermost first."""
    own = [frame for frame in frames if relative_to_code(frame.file, code) is not None]
    others = [frame for frame in frames if relative_to_code(frame.file, code) is None]
    kept = own[: max(limit - min(len(others), limit // 3), 1)]
    return [*kept, *others[: limit - len(kept)]]


_TAIL = 1 << 20  # bytes at the end of a log that are searched
_MAX_LEAD = 6000  # bytes from the first line of a traceback to its exception that are read with it
_MAX_HEADLINE = 120  # characters


def offset_of_error(root: Path, log: Path, exception: str, message: str) -> int | None:
    """Byte at which the traceback begins, of a very long one the line of its exception; None where it is not found."""
    if (end_of_log := read_end(root, log, _TAIL)) is None:
        return None
    start, data = end_of_log
    headline = f"{exception}: {message.partition(chr(10))[0]}"[:_MAX_HEADLINE].rstrip(": ").encode(errors="replace")
    end = data.rfind(headline)
    begin = data.rfind(MARKER.encode(), 0, None if end < 0 else end)
    if max(begin, end) < 0:
        return None
    if begin >= 0 and (end < 0 or end - begin <= _MAX_LEAD):
        end = begin
    return start + data.rfind(b"\n", 0, end) + 1
