"""From the exception that ended a script to the record of it."""

import sys
import time
import traceback
from pathlib import Path
from types import TracebackType

from rekindle.contract.run_dir.rank_records import RankError

_MAX_MESSAGE = 4000  # characters
_MAX_TRACEBACK = 64_000  # characters


def describe(rank: int, error: BaseException, code: Path) -> RankError:
    """The record of ``error``; its file is relative to ``code``, the user's code directory, where it is in it."""
    file, line = _position(error, code)
    text = "".join(traceback.format_exception(type(error), error, user_frames(error.__traceback__)))
    return RankError(
        rank=rank,
        exception=type(error).__name__,
        message=_message(error)[:_MAX_MESSAGE],
        file=file,
        line=line,
        traceback=text[-_MAX_TRACEBACK:],
        exit_code=exit_code(error) if isinstance(error, SystemExit) else None,
        at=time.time(),
        at_monotonic=time.monotonic(),
    )


def exit_code(error: BaseException | None) -> int:
    """The process exit code that Python gives: 1 for an exception, but ``sys.exit(None)`` is 0, ``sys.exit("…")`` 1."""
    if isinstance(error, SystemExit):
        return (error.code or 0) & 0xFF if isinstance(error.code, int | None) else 1
    return 0 if error is None else 1


def print_like_python(error: BaseException | None) -> None:
    """Show ``error`` on stderr as Python would have without the wrapper, by the script's own hook if it has one."""
    if error is None:
        return
    if isinstance(error, SystemExit):
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)  # noqa: T201  # what the interpreter does with sys.exit("text")
        return
    error.__traceback__ = user_frames(error.__traceback__)
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except Exception:  # noqa: BLE001  # a script's hook may fail in any way; Python then shows both
        traceback.print_exc()
        traceback.print_exception(error)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:  # noqa: BLE001  # an exception of the script's own may fail to describe itself
        return f"({type(error).__name__} cannot be shown as text: {type(second).__name__})"


def user_frames(frames: TracebackType | None) -> TracebackType | None:
    """``frames`` without the wrapper's own, and those of the import system, before the script's first line."""
    script = frames
    while script is not None and _is_ours(script):
        script = script.tb_next
    return script


def _is_ours(frame: TracebackType) -> bool:
    name = frame.tb_frame.f_code.co_filename
    return name.startswith("<frozen ") or Path(name).parent == Path(__file__).parent


def relative_to_code(file: str, code: Path) -> str | None:
    """``file`` relative to the user's code directory; None where it is not in it, or no file, such as ``<string>``."""
    path, root = Path(file), code.resolve()
    inside = path.is_absolute() and path.resolve().is_relative_to(root)
    return str(path.resolve().relative_to(root)) if inside else None


def _position(error: BaseException, code: Path) -> tuple[str | None, int | None]:
    """The innermost line of the user's own code, else of any code."""
    if isinstance(error, SyntaxError) and isinstance(error.filename, str):
        return relative_to_code(error.filename, code) or error.filename, error.lineno
    frames = traceback.extract_tb(user_frames(error.__traceback__))
    for frame in reversed(frames):
        if (file := relative_to_code(frame.filename, code)) is not None:
            return file, frame.lineno
    return (frames[-1].filename, frames[-1].lineno) if frames else (None, None)
