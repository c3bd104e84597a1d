"""Whose a process is that uses a GPU."""

from collections.abc import Collection
from pathlib import Path

import psutil

from rekindle.contract.environment import RUN_DIR
from rekindle.contract.processes import parent_of
from rekindle_service.machine.health import DeviceUser


def describe_user(pid: int, keepers: Collection[int], runs: Path) -> DeviceUser | None:
    """None for a process of a job: below one of the ``keepers``, or with a run directory in ``runs``.

    Its name is None where this machine does not show the process, and its user where that has no name.
    """
    if _is_below(pid, keepers) or _has_run_dir(pid, runs):
        return None
    try:
        process = psutil.Process(pid)
        name = process.name()
    except psutil.Error:
        return DeviceUser(pid, None, None, None)
    try:
        user = process.username()
    except psutil.Error:
        user = None
    return DeviceUser(pid, name, user, None)


def _is_below(pid: int, keepers: Collection[int]) -> bool:
    ancestor: int | None = pid
    while ancestor:
        if ancestor in keepers:
            return True
        ancestor = parent_of(ancestor)
    return False


def _has_run_dir(pid: int, runs: Path) -> bool:
    """As a process has that has outlived its keeper."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return any(each.startswith(f"{RUN_DIR}={runs}/".encode()) for each in environment.split(b"\0"))
