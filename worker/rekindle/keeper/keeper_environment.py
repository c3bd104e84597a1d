"""What surrounds a keeper: log, secrets and temporary directory of its job, and the record of what a run uses."""

import json
import os
import platform
import shutil
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from importlib.metadata import distributions
from pathlib import Path

from rekindle.contract.environment import ENV_FILES, PRIVATE_TMP
from rekindle.contract.files import write_json
from rekindle.contract.processes import descendants, forbid_core_dumps, set_child_subreaper, set_process_name
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.rank_processes.process_tree import kill_all, reap_children

_MAX_BYTES = 1 << 16  # of the value of a variable


class SecretError(Exception):
    """The file with the value of a variable cannot be read; the message names both."""


def log(message: str) -> None:
    """Print to stderr, which is the log of a keeper, and of its agents."""
    with suppress(OSError):  # it may be on the disk whose being full is reported
        print(message, file=sys.stderr, flush=True)  # noqa: T201


def keep_job(name: str, keep: Callable[[], bool]) -> bool:
    """Let ``keep`` start ranks, with the secrets and the directory of their job, and leave no process behind.

    Returns what it returns: whether the job has ended. Raises SecretError.
    """
    set_process_name(name)
    set_child_subreaper()
    forbid_core_dumps()
    is_over, tmp = False, make_private_tmp()
    try:
        read_secrets()
        is_over = keep()
    finally:
        kill_all(partial(descendants, os.getpid()), reap_children)
        if is_over and tmp is not None:
            shutil.rmtree(tmp, ignore_errors=True)
    return is_over


def read_secrets() -> None:
    """Set the variables whose values are in files; with the rights of the job. Raises SecretError."""
    for name, path in json.loads(os.environ.pop(ENV_FILES, "{}")).items():
        os.environ[name] = _read_secret(name, path)


def _read_secret(name: str, path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError("it is not a regular file")
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise SecretError(f"env.{name}: {path} cannot be read: {error.strerror or error}") from error
    if len(data) > _MAX_BYTES or b"\0" in data:
        raise SecretError(f"env.{name}: {path} must have at most {_MAX_BYTES} bytes, none of them NUL")
    return os.fsdecode(data.removesuffix(b"\n").removesuffix(b"\r"))


def make_private_tmp() -> Path | None:
    """Make the directory that TMPDIR names, if it is the job's own; it may have files of an earlier keeper.

    Where another user has taken the name, or nothing can be made, TMPDIR becomes that of the machine.
    """
    path = os.environ.pop(PRIVATE_TMP, None)
    if path is None:
        return None
    directory = Path(path)
    with suppress(OSError):
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
            return directory
    os.environ.pop("TMPDIR", None)
    return None


def write_environment_info(run_dir: RunDir, run: int) -> None:
    """Record interpreter, packages and machine once, when a keeper begins; a full disk costs the file, not the run."""
    with suppress(OSError):
        info = {
            "run": run,
            "at": time.time(),
            "host": platform.node(),
            "system": f"{platform.system()} {platform.release()}",
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)),
            "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "python": platform.python_version(),
            "packages": list_packages(),
        }
        write_json(run_dir.surroundings, info, durable=False)


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


@cache
def list_packages() -> dict[str, str]:
    """Name and version of everything that is installed, as ``pip list`` has it. A damaged package is omitted.

    Read once: a spare keeper has done so before it forks a keeper, and ends where a package is installed.
    """
    found: dict[str, str] = {}
    for package in distributions():
        with suppress(Exception):  # whatever a broken installation raises, it must not stop a training
            found.setdefault(str(package.metadata["Name"]), str(package.version))
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))
