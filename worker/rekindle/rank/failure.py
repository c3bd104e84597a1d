"""From the exception that ended a script to the record of it."""

import re
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.rank_records import RankError
from rekindle.contract.safe_open import read_end

_MAX_MESSAGE = 4000  # characters
_MAX_TRACEBACK = 64_000  # characters
_STDERR_TAIL = 4000  # bytes
_MAX_CONTEXTS = 4
_MAX_SUMMARY = 300  # characters
_MESSENGERS = {"ProcessRaisedException"}  # they only carry the exception of another process
_TRACEBACK = "Traceback (most recent call last):\n"
_QUOTED_FRAME = re.compile(r'^ *File "(.*)", line (\d+), in ', re.MULTILINE)
_UNPICKLER_REASON = re.compile(
    r"Unsupported (global|class|operand)|WeightsUnpickler error|invalid load key", re.IGNORECASE
)
_ERROR_LINE = re.compile(r"\berror: ", re.IGNORECASE)


def describe(
    rank: int, error: BaseException, code: Path, stderr: Path | None = None, *, contexts: int = _MAX_CONTEXTS
) -> RankError:
    """The record of ``error``; its file is relative to ``code``, the user's code directory, where it is in it.

    ``stderr`` is what the script has written there, which shows why it has exited where the exit itself does not.
    Up to ``contexts`` exceptions that were being handled are recorded with it.
    """
    exception, message, (file, line) = type(error).__name__, _message(error), position(error, code)
    if (nested := _nested(message, code)) is not None:
        inner, headline, place = nested
        file, line = place or (file, line)
        message = f"{_first_line(message)}: {headline}\n{message}"
        exception = inner if exception in _MESSENGERS else exception
    elif exception == "UnpicklingError":
        message = _reason_of_unpickler(message)
    elif isinstance(error, SystemExit) and isinstance(error.code, int) and stderr is not None:
        message = _last_error_line(stderr) or message
    text = "".join(traceback.format_exception(type(error), error, user_frames(error.__traceback__)))
    return RankError(
        rank=rank,
        exception=exception,
        message=message[:_MAX_MESSAGE],
        file=file,
        line=line,
        traceback=text[-_MAX_TRACEBACK:],
        exit_code=exit_code(error) if isinstance(error, SystemExit) else None,
        at=time.time(),
        at_monotonic=time.monotonic(),
        context=_context(rank, error, code, contexts),
    )


def _context(rank: int, error: BaseException, code: Path, contexts: int) -> RankError | None:
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is None or not contexts:
        return None
    return replace(describe(rank, before, code, contexts=contexts - 1), traceback="")


def summarize(error: BaseException, code: Path) -> str:
    """Summarize ``error``, as in ``ValueError: bad value (train.py:12)``."""
    file, line = position(error, code)
    text = ": ".join(filter(None, (type(error).__name__, _first_line(_message(error)))))
    return text[:_MAX_SUMMARY] + ("" if file is None else f" ({file}:{line})")


def _nested(message: str, code: Path) -> tuple[str, str, tuple[str, int] | None] | None:
    """Class, last line and place of the exception of another process that ``message`` quotes with its traceback.

    torch.multiprocessing.spawn and data loaders do so, and what matters is in there.
    """
    before, found, quoted = message.rpartition(_TRACEBACK)
    if not (before and found):
        return None
    ends = [line for line in quoted.splitlines() if line and not line[0].isspace()]
    if not ends:
        return None
    frames = [(relative_to_code(file, code), int(line)) for file, line in _QUOTED_FRAME.findall(quoted)]
    own = [(file, line) for file, line in frames if file is not None]
    return ends[0].partition(":")[0].rpartition(".")[2], ends[0], own[-1] if own else None


def _first_line(message: str) -> str:
    return next((line for line in message.splitlines() if line.strip()), "").strip(" -.:")


def _reason_of_unpickler(message: str) -> str:
    """Put the reason first: torch.load explains at length what else to try, and names the reason below."""
    reasons = [line.strip() for line in message.splitlines() if _UNPICKLER_REASON.search(line)]
    return f"{reasons[0]}\n{message}" if reasons else message


def _last_error_line(stderr: Path) -> str | None:
    """The latest line such as argparse's ``train.py: error: …``."""
    text = read_end(stderr, _STDERR_TAIL)
    found = [line.strip() for line in text.splitlines() if _ERROR_LINE.search(line)]
    return found[-1] if found else None


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
    """Remove the wrapper's frames, and those of the import system, before the script's first line."""
    script = frames
    while script is not None and _is_ours(script):
        script = script.tb_next
    return script


def _is_ours(frame: TracebackType) -> bool:
    name = frame.tb_frame.f_code.co_filename
    return name.startswith("<frozen ") or Path(name).parent == Path(__file__).parent


def relative_to_code(file: str, code: Path) -> str | None:
    """Make ``file`` relative to the user's code directory; None where it is not in it, or no file, as ``<string>``.

    The hook of a replay, which is next to that directory, belongs to the user's code.
    """
    path, root = Path(file), code.resolve()
    if path.is_absolute() and path.resolve() == (hook := RunDir(root.parent).replay_hook):
        return hook.name
    inside = path.is_absolute() and path.resolve().is_relative_to(root)
    return str(path.resolve().relative_to(root)) if inside else None


def position(error: BaseException, code: Path) -> tuple[str | None, int | None]:
    """The innermost line of the user's own code, else of any code."""
    if isinstance(error, SyntaxError) and isinstance(error.filename, str):
        return relative_to_code(error.filename, code) or error.filename, error.lineno
    frames = traceback.extract_tb(user_frames(error.__traceback__))
    for frame in reversed(frames):
        if (file := relative_to_code(frame.filename, code)) is not None:
            return file, frame.lineno
    return (frames[-1].filename, frames[-1].lineno) if frames else (None, None)
