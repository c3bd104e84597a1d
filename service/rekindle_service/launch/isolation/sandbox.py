"""What confines a job: a sandbox, and a cgroup.

The sandbox is bubblewrap (https://github.com/containers/bubblewrap), seen as one command line. In it the system is
read-only, and the home of rekindle, other users' files, other processes and ``/tmp`` do not exist.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.config.home import Home

HIDDEN = ("/home", "/root", "/run", "/tmp", "/var/tmp", "/srv", "/media")  # noqa: S108  # to be hidden, not to be used
TMP = "/tmp"  # noqa: S108  # inside of the sandbox it is the job's own
_DEVICES = ("nvidia*", "nvidia-caps", "kfd", "dri", "infiniband", "fuse")  # in /dev, where they exist
_SERVICES = ("/run/systemd/resolve", "/run/nvidia-persistenced", "/run/NetworkManager/resolv.conf", "/run/nscd")
_PROBE_TIMEOUT = 20  # seconds
_NAMESPACES = ("--unshare-pid", "--unshare-ipc", "--unshare-cgroup-try")


@dataclass(frozen=True, slots=True)
class Sandbox:
    """``read`` and ``write``: paths that jobs see, or may change, in addition; ``~`` is the home of the job's user."""

    program: str
    home: Home
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: bool = True

    def command(self, run_dir: RunDir, user_home: Path, tmp: Path) -> list[str]:
        """What starts a command in the sandbox; ``tmp`` becomes its /tmp. Later arguments cover earlier ones.

        ``tmp`` is mounted on itself, too, so that no job can replace it: a link there would be followed by the next
        start, while processes of this one may still run.
        """
        return [
            self.program,
            *_NAMESPACES,
            *([] if self.network else ["--unshare-net"]),
            *("--ro-bind", "/", "/"),
            *("--dev", "/dev", "--proc", "/proc", "--perms", "1777", "--tmpfs", "/dev/shm"),  # noqa: S108
            *_each("--dev-bind-try", _devices()),
            *_hide(HIDDEN),
            *("--bind", str(tmp), TMP, "--bind", str(tmp), "/var/tmp"),  # noqa: S108
            *_each("--ro-bind-try", (*_SERVICES, *_own_paths())),
            *_each("--ro-bind-try", _expand(self.read, user_home)),
            *_each("--bind-try", _expand(self.write, user_home)),
            *_hide([os.path.realpath(self.home.root)]),
            *_each("--ro-bind", [str(self.home.worker_copies)]),
            *("--dir", str(home_inside(user_home))),
            *_each("--bind", [str(run_dir.root), str(tmp)]),
            *("--chdir", str(run_dir.code)),
        ]

    def hides(self, path: Path) -> bool:
        """Whether jobs cannot see ``path``. What a setting shows below a user's home counts as shown to all."""
        shown = [os.path.expanduser(each) for each in (*self.read, *self.write)]  # noqa: PTH111
        everywhere = [each for each in (*self.read, *self.write) if each.startswith("~")]
        visible = any(path.is_relative_to(each) for each in (*shown, *_own_paths()))
        return not visible and not everywhere and any(path.is_relative_to(each) for each in HIDDEN)

    def without_home(self, directory: Path) -> list[str]:
        """What starts a command that sees the files of the server's user, but not rekindle's home, and no process.

        It may write ``directory`` alone.
        """
        return [
            self.program,
            *(*_NAMESPACES, "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
            *_hide([os.path.realpath(self.home.root)]),
            *_each("--bind", [os.path.realpath(directory)]),
            "--",
        ]


def home_inside(user_home: Path) -> Path:
    """The home of the job's user as its processes see it: empty and theirs alone."""
    return user_home if any(user_home.is_relative_to(hidden) for hidden in HIDDEN) else Path(TMP)


def find_program() -> str | None:
    """The path of bubblewrap, or None where it is not installed."""
    return shutil.which("bwrap", path=f"{os.environ.get('PATH', os.defpath)}:/usr/bin:/bin")


@cache
def lack_of_sandbox(program: str | None) -> str | None:
    """Why no sandbox can be made here, in words; None where one works. Tried, since only that shows it."""
    if program is None:
        return "bubblewrap is not installed (apt install bubblewrap)"
    command = [program, *_NAMESPACES, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "true"]
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_TIMEOUT, check=True)
    except subprocess.CalledProcessError as error:
        return f"bubblewrap cannot make one: {error.stderr.decode(errors='replace').strip()[-300:]}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap cannot be run: {error}"
    return None


def _each(option: str, paths: Iterable[str]) -> list[str]:
    return [word for path in paths for word in (option, path, path)]


def _hide(paths: Sequence[str]) -> list[str]:
    """Directories that exist; a link such as /var/run leads into one that is covered."""
    present = [path for path in paths if Path(path).is_dir() and not Path(path).is_symlink()]
    return [word for path in present for word in ("--tmpfs", path)]


def _devices() -> list[str]:
    return sorted(str(path) for pattern in _DEVICES for path in Path("/dev").glob(pattern))


def _expand(paths: Iterable[str], user_home: Path) -> list[str]:
    return [str(user_home) + path[1:] if path == "~" or path.startswith("~/") else path for path in paths]


@cache
def _own_paths() -> tuple[str, ...]:
    """Paths of this server's interpreter that the sandbox would hide."""
    links = [Path(sys.executable)]
    while links[-1].is_symlink():
        links.append(links[-1].parent / links[-1].readlink())
    installed: list[str | Path] = [sys.prefix, sys.base_prefix, *(link.parent.parent for link in links)]
    paths = [Path(os.path.normpath(str(each))) for each in installed]
    wanted = {str(path) for path in paths if any(path.is_relative_to(hidden) for hidden in HIDDEN)}
    return tuple(sorted(wanted - {*HIDDEN, str(Path.home())}))


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
        """Remove the cgroups of ended jobs: the kernel refuses to remove one that has a process."""
        for directory in self.root.iterdir():
            if directory.is_dir():
                with suppress(OSError):
                    directory.rmdir()
