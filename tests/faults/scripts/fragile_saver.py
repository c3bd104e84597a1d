"""Does one thing to a directory of snapshots again and again, each time in a child whose storage fails one call later.

    fragile_saver.py HOME CASE:FAULT...

HOME/CASE-FAULT/before is made first; <n> next to it is a copy, as the child left it whose n-th call failed. CASE says
what the children do: ``newer`` takes a snapshot of the next step, ``again`` one of the same step, ``fallback`` restores
where the latest is damaged. FAULT is SIGKILL, or the name of an errno (once: the disk is well again afterwards), or
``strace``: SIGKILL at every system call of every kind, struck from outside. Prints a JSON line for each child.
"""

import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from rekindle import Snapshots

OF_POSIX = {
    "chmod", "fdatasync", "fsync", "ftruncate", "link", "mkdir", "open", "pwrite", "remove", "rename", "replace",
    "rmdir", "symlink", "truncate", "unlink", "write", "writev",
}  # fmt: skip
OF_FILES = {"write", "flush", "truncate"}
MANY = "write"  # a file takes dozens: all are struck in one case only


class FailingStorage:
    """A profile function: the ``number``-th call that changes the disk, of all threads, does not happen.

    Not counted are the calls of the name ``but``.
    """

    def __init__(self, number: int, strike: Callable[[], None], but: str = "") -> None:
        self._left, self._strike, self._but = number, strike, but
        self.struck = ""

    def __call__(self, frame: FrameType, event: str, call: Any) -> None:
        if event == "c_call" and changes_the_disk(call) and call.__name__ != self._but:
            self._left -= 1
            if self._left == 0:
                self.struck = call.__name__
                self._strike()

    def install(self) -> None:
        sys.setprofile(self)
        threading.setprofile(self)


def changes_the_disk(call: Any) -> bool:
    if isinstance(getattr(call, "__self__", None), io.IOBase):
        return call.__name__ in OF_FILES
    return getattr(call, "__module__", "") == "posix" and call.__name__ in OF_POSIX


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def failing_with(name: str) -> Callable[[], None]:
    def fail() -> None:
        number = getattr(errno, name)
        raise OSError(number, os.strerror(number))

    return fail


def save(snapshots: Snapshots, step: int, version: int = 0) -> str | None:
    model = {"weight": torch.full((30_000,), step + version / 10)}
    return snapshots.save(step, 0, {"model": model, "version": version}, {"step": step}).problem


def prepare(before: Path, case: str) -> None:
    save(Snapshots(before, keep_last=1), 1)
    if case == "fallback":
        shutil.copytree(before / f"{1:012d}", before / f"{2:012d}")  # its manifest says step 1
        (before / f".tmp-dead-{3:012d}").mkdir()


def act(snapshots: Snapshots, case: str) -> str | None:
    match case:
        case "newer":
            return save(snapshots, 2)
        case "again":
            return save(snapshots, 1, version=1)
        case "fallback":
            snapshots.restore()
            return None
    raise ValueError(case)


def live(directory: Path, case: str, number: int, fault: str) -> dict[str, Any]:
    """What struck, the problem that was reported, and what can be done afterwards, when the disk is well again."""
    strike = die if fault == "SIGKILL" else failing_with(fault)
    storage = FailingStorage(number, strike, but="" if (case, fault) == ("newer", "SIGKILL") else MANY)
    snapshots = Snapshots(directory, keep_last=1)
    storage.install()
    problem = act(snapshots, case)
    sys.setprofile(None)
    threading.setprofile(None)
    back = snapshots.restore()
    return {
        "at": storage.struck,
        "problem": problem,
        "back": None if back is None else [back.step, back.shared_state["version"]],
        "next": save(snapshots, 3),
    }


def in_a_child(work: Callable[[], Any], meanwhile: Callable[[int], None] = lambda pid: None) -> tuple[int, Any]:
    """The wait status of a child that does ``work``, and its result if it came to that."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.write(writing, json.dumps(work()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    meanwhile(pid)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    return os.waitpid(pid, 0)[1], json.loads(told) if told else None


def fail_at_each_call(home: Path, case: str, fault: str) -> None:
    number, struck = 0, True
    while struck:
        number += 1
        directory = shutil.copytree(home / "before", home / str(number))
        status, told = in_a_child(lambda: live(directory, case, number, fault))  # noqa: B023  # it is run at once
        report(case, fault, directory, status, **(told or {}))
        struck = told is None or told["at"] != ""


def report(case: str, fault: str, directory: Path, status: int, **told: Any) -> None:
    print(json.dumps({"case": case, "fault": fault, "directory": str(directory), "status": status, **told}), flush=True)


# --- from outside


def attached(pid: int, *options: str) -> subprocess.Popen[bytes]:
    """strace of all threads of ``pid``, which is waiting for SIGUSR1; it is let go when strace has it."""
    strace = subprocess.Popen(["strace", "-f", "-qq", "-p", str(pid), *options], stderr=subprocess.DEVNULL)
    while "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text() and strace.poll() is None:
        pass
    os.kill(pid, signal.SIGUSR1)
    return strace


def waiting(work: Callable[[], Any]) -> Any:
    signal.sigwait({signal.SIGUSR1})
    return work()


def under_strace(directory: Path, case: str, *options: str) -> int:
    """The wait status of a child that acts when strace has it."""
    strace: list[subprocess.Popen[bytes]] = []
    status, _ = in_a_child(
        lambda: waiting(lambda: act(Snapshots(directory, keep_last=1), case)),
        lambda pid: strace.append(attached(pid, *options)),
    )
    strace[0].wait()
    return status


def system_calls(home: Path, case: str) -> Counter[str]:
    """How often each kind of call is made by the thread that makes it most often: strace counts for each thread."""
    log = home / "calls"
    under_strace(shutil.copytree(home / "before", home / "0"), case, "-o", str(log))
    most: Counter[str] = Counter()
    for (_, name), count in Counter(re.findall(r"^(\d+) +(\w+)\(", log.read_text(), flags=re.MULTILINE)).items():
        most[name] = max(most[name], count)
    return most


def kill_at_each_system_call(home: Path, case: str) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    for name, count in sorted(system_calls(home, case).items()):
        for when in range(1, count + 1):
            directory = shutil.copytree(home / "before", home / f"{name}-{when}")
            inject = f"inject={name}:signal=SIGKILL:when={when}"
            status = under_strace(directory, case, "-o", os.devnull, "-e", f"trace={name}", "-e", inject)
            report(case, "strace", directory, status, at=name)


def main() -> None:
    home = Path(sys.argv[1])
    for each in sys.argv[2:]:
        case, fault = each.split(":")
        own = home / f"{case}-{fault}"
        prepare(own / "before", case)
        if fault == "strace":
            kill_at_each_system_call(own, case)
        else:
            fail_at_each_call(own, case, fault)


if __name__ == "__main__":
    main()
