"""What a forked keeper changes in itself, so that it differs in nothing from one that was started by itself."""

import ctypes
import os
import sys
import tempfile
import time
from collections.abc import Mapping

from rekindle.contract.environment import RUN_DIR, SPARE_ARGUMENT
from rekindle.contract.processes import open_descriptors, stat_fields

_COERCED = ["LC_CTYPE"]
"""Python sets it for its children where no locale is set (PEP 538); the locale is the same for all jobs of a spare."""
_ARGUMENTS, _ENVIRONMENT = 45, 47  # fields of /proc/PID/stat from the third on: where each begins; its end follows


def become(environment: Mapping[str, str], run_dir: str, cwd: str, lasting: set[int]) -> None:
    """Take over all that the keeper of ``run_dir`` has of its own; of the descriptors, ``lasting`` stay open.

    What libraries have read at their import stays: the jobs of a spare keeper agree in it. Raises OSError.
    """
    for fd in open_descriptors() - lasting - {0, 1, 2}:
        os.close(fd)
    coerced = {name: os.environ[name] for name in _COERCED if name in os.environ}
    os.environ.clear()
    os.environ.update({**coerced, **environment})
    time.tzset()
    tempfile.tempdir = None
    os.chdir(cwd)
    sys.argv[1:] = [run_dir]
    _show_in_proc(run_dir)


def _show_in_proc(run_dir: str) -> None:
    """Let ``/proc`` show the run directory as it does for any keeper: a later one finds by it what this one leaves.

    The kernel shows the memory in which it has put arguments and variables at the start of the interpreter.
    """
    path = os.fsencode(run_dir)
    _overwrite(_ARGUMENTS, SPARE_ARGUMENT.encode(), path)
    _overwrite(_ENVIRONMENT, RUN_DIR.encode() + b"=", RUN_DIR.encode() + b"=" + path)


def _overwrite(field: int, prefix: bytes, text: bytes) -> None:
    fields = stat_fields(os.getpid()) or []
    start, end = int(fields[field]), int(fields[field + 1])
    shown = b"\0" + ctypes.string_at(start, end - start)
    begin = shown.find(b"\0" + prefix)
    length = shown.find(b"\0", begin + 1) - begin - 1
    if begin < 0 or length < len(text):
        raise OSError(f"{text!r} has no room in the memory that /proc shows: it takes {len(text)} bytes of {length}")
    ctypes.memmove(start + begin, text.ljust(length, b"\0"), length)
