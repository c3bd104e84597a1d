"""From the exception that ended a script to the record of it."""

import sys
import time
import traceback
from pathlib import Path
from types import TracebackType

from rekindle.contract.rank_records import RankError

_MESSAGE_LIMIT = 4000
_TRACEBACK_LIMIT = 64_000


def describe(rank: int, error: BaseException, code: Path) -> RankError:
    """The record of ``error``; its file is relative to ``code``, the user's code directory, where it lies in it."""
    file, line = _place(error, code)
    text = "".join(traceback.format_exception(type(error), error, user_frames(error.__traceback__)))
    return RankError(
        rank=rank,
        exception=type(error).__name__,
        message=str(error)[:_MESSAGE_LIMIT],
        file=file,
        line=line,
        traceback=text[-_TRACEBACK_LIMIT:],
        exit_code=exit_code(error) if isinstance(error, SystemExit) else None,
        at=time.time(),
        at_monotonic=time.monotonic(),
    )


def exit_code(error: SystemExit) -> int:
    """The process exit code that Python gives to ``sys.exit(...)``: None is 0, text is printed and 1."""
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def print_like_python(error: BaseException) -> None:
    """Show ``error`` on stderr as Python would have without the wrapper."""
    if isinstance(error, SystemExit):
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)  # noqa: T201  # what the interpreter does with sys.exit("text")
        return
    traceback.print_exception(type(error), error, user_frames(error.__traceback__))


def user_frames(frames: TracebackType | None) -> TracebackType | None:
    """``frames`` without those of runpy and of the wrapper before the script's first line."""
    script = frames
    while script is not None and _is_ours(script):
        script = script.tb_next
    return script


def _is_ours(frame: TracebackType) -> bool:
    name = frame.tb_frame.f_code.co_filename
    return name.startswith("<frozen ") or Path(name).name == "runpy.py" or Path(name).parent == Path(__file__).parent


def _place(error: BaseException, code: Path) -> tuple[str | None, int | None]:
    """The innermost line of the user's own code, else of any code."""
    if isinstance(error, SyntaxError) and error.filename:
        return _relative(error.filename, code), error.lineno
    summary = traceback.extract_tb(user_frames(error.__traceback__))
    if not summary:
        return None, None
    own = [frame for frame in summary if _lies_in(frame.filename, code)]
    place = (own or summary)[-1]
    return _relative(place.filename, code), place.lineno


def _lies_in(name: str, code: Path) -> bool:
    return Path(name).resolve().is_relative_to(code.resolve())


def _relative(name: str, code: Path) -> str:
    return str(Path(name).resolve().relative_to(code.resolve())) if _lies_in(name, code) else name
