"""Stacks of Python as text: what faulthandler dumps of a rank's threads. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d{1,9}) in (?P<function>.*)$')
_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+")
_ENTRYPOINT = "rekindle/rank/entrypoint.py"
_HANDLERS = "rekindle/rank/handlers.py"
_COLLECTIVES = "torch/distributed/distributed_c10d.py"
_BACKWARD = re.compile(r"torch/autograd/(graph|__init__)\.py$")
_WAITING = re.compile(
    r"torch/distributed/(distributed_c10d|_functional_collectives|c10d_logger|rendezvous|nn/functional)\.py$"
)
_SYNCHRONIZE = re.compile(r"torch/(cuda|accelerator)/(__init__|streams)\.py$")
_WAITS_FOR_GPU = re.compile(r"\.(item|tolist|cpu|to|numpy|synchronize)\(|\b(float|int|bool|print)\(|^\s*(if|while)\b")
_INNERMOST = 6  # frames among which a collective is, where one is waited for


@dataclass(frozen=True, slots=True)
class Frame:
    """One level of a Python stack."""

    file: str
    line: int
    function: str


def main_stack(dump: str) -> list[Frame]:
    """The main thread's frames of the last dump of faulthandler in ``dump``, innermost first, down to the script's."""
    threads: list[list[Frame]] = []
    for text in dump.splitlines():
        if _THREAD.match(text):
            threads.append([])
        elif threads and (match := _FRAME.match(text)):
            threads[-1].append(Frame(match["file"], int(match["line"]), match["function"]))
    frames = threads[-1] if threads else []
    wrapper = [index for index, frame in enumerate(frames) if frame.file.endswith(_ENTRYPOINT)]
    return frames[: wrapper[0]] if wrapper else frames


def crash_dump(text: str) -> str | None:
    """What faulthandler wrote into ``text`` when the process crashed; None where it did not."""
    _, fatal, dump = text.rpartition("Fatal Python error: ")
    return fatal + dump if fatal else None


def crashed_stack(dump: str) -> list[Frame]:
    """The frames of the thread that has crashed, innermost first, down to the script's."""
    before, current, thread = dump.rpartition("Current thread 0x")
    frames = main_stack((current + thread).partition("\n\n")[0]) if current else main_stack(before)
    return [frame for frame in frames if not frame.file.endswith(_HANDLERS)]


def called_collective(frames: Sequence[Frame]) -> str | None:
    """The collective of torch.distributed that has not returned, such as ``all_reduce``; None outside of one."""
    calls = [frame.function for frame in frames[:_INNERMOST] if frame.file.endswith(_COLLECTIVES)]
    return calls[0] if calls else None


def waits_for_peers(frames: Sequence[Frame]) -> bool:
    """True where the innermost frames are inside a collective, or in a backward pass that ends in one."""
    return any(_WAITING.search(frame.file) or _BACKWARD.search(frame.file) for frame in frames[:_INNERMOST])


def waits_for_gpu(frames: Sequence[Frame], source_line: str) -> bool:
    """True where the innermost frame may wait for the work of a GPU; ``source_line``: its line of the source.

    The calls that wait are not Python, and have no frame of their own.
    """
    in_torch = bool(frames) and frames[0].function == "synchronize" and bool(_SYNCHRONIZE.search(frames[0].file))
    return in_torch or bool(_WAITS_FOR_GPU.search(source_line))
