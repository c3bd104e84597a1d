"""Reading the stacks that a rank leaves on request (faulthandler's form): where is it, and is it waiting for a peer?"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+")
_WAITING = re.compile(
    r"torch/distributed/(distributed_c10d|_functional_collectives|c10d_logger|rendezvous|nn/functional)\.py$"
    r"|torch/autograd/(graph|__init__)\.py$"
)


@dataclass(frozen=True, slots=True)
class Frame:
    """One level of a Python stack."""

    file: str
    line: int
    function: str


def main_stack(dump: str) -> list[Frame]:
    """The main thread's frames of the last dump in ``dump``, innermost first, without the wrapper's own."""
    threads: list[list[Frame]] = []
    for text in dump.splitlines():
        if _THREAD.match(text):
            threads.append([])
        elif threads and (match := _FRAME.match(text)):
            threads[-1].append(Frame(match["file"], int(match["line"]), match["function"]))
    return _without_wrapper(threads[-1]) if threads else []


def place(frames: Sequence[Frame], code: Path) -> Frame | None:
    """The innermost frame in the user's own code, its file relative to ``code``; else the innermost of all."""
    root = code.resolve()
    for frame in frames:
        path = Path(frame.file)
        if path.is_absolute() and path.resolve().is_relative_to(root):
            return Frame(str(path.resolve().relative_to(root)), frame.line, frame.function)
    return frames[0] if frames else None


def waits_for_peers(frames: Sequence[Frame]) -> bool:
    """True where the innermost frames are inside a collective, or in a backward pass that ends in one."""
    return any(_WAITING.search(frame.file) for frame in frames[:6])


def _without_wrapper(frames: list[Frame]) -> list[Frame]:
    """``frames`` down to the script's first line: below it stand the wrapper and torchrun."""
    for index, frame in enumerate(frames):
        if frame.file.endswith("rekindle/rank/target.py"):
            return frames[:index]
    return frames
