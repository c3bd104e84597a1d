"""Ties between processes that only the Linux kernel can keep, whatever dies first."""

import ctypes
import os
import resource
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, argument: int | bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def die_with_parent(parent: int) -> None:
    """Have the kernel SIGKILL this process when ``parent``, the process that started it, dies; at once if it has."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def set_child_subreaper() -> None:
    """Make descendants whose parent dies children of this process, so that none escapes it."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_process_name(name: str) -> None:
    """What ``ps -o comm`` and ``top`` show, at most 15 bytes: forked processes would all be called ``python``."""
    _prctl(_PR_SET_NAME, name.encode()[:15])


def forbid_core_dumps() -> None:
    """A rank's core file has the size of its memory (1.4 GB on CPU) and lands in the user's code directory."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
