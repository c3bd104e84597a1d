"""A cgroup (version 2) per job: limits of memory, processor and processes, and an end that no process escapes."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_CPU_PERIOD = 100_000  # microseconds


class NoCgroupError(OSError):
    """The setting ``cgroup`` cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """None: no limit."""

    memory_bytes: int | None = None
    cpus: float | None = None
    processes: int | None = None

    def by_controller(self) -> dict[str, dict[str, str]]:
        """The files to write, by the controller that they belong to."""
        found: dict[str, dict[str, str]] = {}
        if self.memory_bytes is not None:  # without swap, which would only delay the end
            found["memory"] = {"memory.max": str(self.memory_bytes), "memory.swap.max": "0"}
        if self.cpus is not None:
            found["cpu"] = {"cpu.max": f"{round(self.cpus * _CPU_PERIOD)} {_CPU_PERIOD}"}
        if self.processes is not None:
            found["pids"] = {"pids.max": str(self.processes)}
        return found


@dataclass(frozen=True, slots=True)
class CgroupParent:
    """A directory of the cgroup file system in which this server may make others."""

    root: Path
    limits: CgroupLimits

    def check(self) -> None:
        """Turn on the controllers that the limits need. Raises NoCgroupError."""
        needed = set(self.limits.by_controller())
        try:
            available = set((self.root / "cgroup.controllers").read_text().split())
            if missing := needed - available:
                have = ", ".join(sorted(available)) or "none"
                raise NoCgroupError(f"{self.root} lacks the controllers {', '.join(sorted(missing))} (it has {have})")
            if needed:
                (self.root / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(needed)))
            probe = self.root / f"rekindle-probe-{os.getpid()}"
            probe.mkdir()
            probe.rmdir()
        except NoCgroupError:
            raise
        except OSError as error:
            raise NoCgroupError(f"{self.root} is no cgroup (version 2) of this user: {error}") from error

    def create(self, job_id: str) -> Path:
        """The file to which the job's first process writes its pid. What an earlier keeper left in it is killed.

        Precondition: the job has no keeper. Raises OSError.
        """
        self._remove_empty()
        directory = self.root / job_id
        directory.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):  # before Linux 5.14
            (directory / "cgroup.kill").write_text("1")
        for files in self.limits.by_controller().values():
            for name, value in files.items():
                with suppress(FileNotFoundError):  # memory.swap.max, where the kernel has no swap
                    (directory / name).write_text(value)
        return directory / "cgroup.procs"

    def _remove_empty(self) -> None:
        """Those of jobs that have ended: the kernel refuses to remove one that has a process."""
        for directory in self.root.iterdir():
            if directory.is_dir():
                with suppress(OSError):
                    directory.rmdir()
