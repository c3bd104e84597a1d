"""A rank that runs its script before its attempt begins, and waits at the first line with an effect.

How: an audit hook sees what the script opens, lists, starts and connects to, and replaced functions of ``os`` see which
files it asks about. It waits before it writes, starts or contacts anything, joins a process group, uses CUDA, reads its
number, or reads what the job may have changed since it began; there it writes down everything that it has read, and the
keeper continues it only where that is still the same. What C++ or Rust reads or writes by itself is not seen, which is
why jobs have to ask for this.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import rekindle
from rekindle.contract.environment import STANDBY, RankEnv
from rekindle.contract.files import write_json
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.standby_world import MAX_INPUTS, FileVersion, HeldRank, version_of
from rekindle.rank.file_tracking import IGNORED, absolute_path
from rekindle.rank.import_hooks import call_when_loaded, replacement

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_IGNORED_PARTS = (  # what is read there is no input, and an import writes there
    "/__pycache__/",
    "/site-packages/",
    f"{sys.base_prefix}/lib/python",
    f"{Path(rekindle.__file__).parent}/",
)
_EFFECTS = frozenset(
    {
        *("os.remove", "os.rename", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.link", "os.symlink"),
        *(
            "os.utime",
            "os.setxattr",
            "os.removexattr",
            "os.kill",
            "os.killpg",
            "os.fork",
            "os.forkpty",
            "os.posix_spawn",
        ),
        *("os.spawn", "os.exec", "os.system", "os.startfile", "subprocess.Popen", "pty.spawn", "fcntl.flock"),
        *("fcntl.lockf", "socket.bind", "socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo"),
        *("socket.gethostbyname", "socket.gethostbyaddr", "sqlite3.connect", "builtins.input", "builtins.breakpoint"),
        RankEnv.AUDIT_EVENT,
    }
)
_REPLACED = ("stat", "lstat", "access", "readlink")  # of ``os``: they have no audit event
_GROUPS = "torch.distributed.distributed_c10d"
_HELD_FUNCTIONS = (
    (_GROUPS, "rendezvous"),
    (_GROUPS, "_new_process_group_helper"),
    ("torch.cuda", "_lazy_init"),
    ("torch.serialization", "_open_zipfile_writer"),
    ("torch.serialization", "_open_zipfile_reader"),
    ("safetensors.torch", "serialize_file"),
    ("safetensors.torch", "safe_open"),
)
"""By which torch and safetensors begin what has no audit event."""


class Standby:
    """The wait of this rank for its attempt; ``begin`` makes it a rank of the attempt, once that is there."""

    def __init__(self, pipe: int, run_dir: RunDir, rank: int) -> None:
        self._pipe, self._file = pipe, run_dir.standby_rank(rank)
        self._changed_since = run_dir.spec.stat().st_mtime_ns  # the job may have written what is later
        self._begin: Callable[[], None] = lambda: None
        self._arguments: list[str] = []
        self._inputs: dict[str, FileVersion | None] = {}
        self._directories: set[str] = set()  # that it has found to exist
        self._lock, self._busy = threading.RLock(), threading.local()  # whose events are this module's own
        self._runs_script = False
        self._released = False
        self._original = {name: getattr(os, name) for name in _REPLACED}

    @classmethod
    def from_environment(cls, env: RankEnv, run_dir: RunDir) -> Self | None:
        """None where the attempt has begun; the script does not find the variable."""
        pipes = os.environ.pop(STANDBY, None)
        if pipes is None:
            return None
        own = pipes.split(",")[env.local_rank]
        for pipe in pipes.split(","):
            if pipe != own:
                os.close(int(pipe))
        return cls(int(own), run_dir, env.rank)

    def watch(self, begin: Callable[[], None], arguments: list[str]) -> None:
        """Hold the script, which has these ``arguments``, at its first effect; call it right before it is run."""
        self._begin, self._arguments = begin, arguments
        for name in _REPLACED:
            setattr(os, name, self._noting(self._original[name]))
        sys.addaudithook(self._on_event)
        call_when_loaded([replacement(module, name, self._holding) for module, name in _HELD_FUNCTIONS])

    def hold(self) -> None:
        """Wait until the attempt begins; return at once where it has."""
        with self._lock:
            if self._released or self._is_own:
                return
            with self._as_own():
                found = {path: each for path, each in self._inputs.items() if each is not None}
                missing = [path for path, each in self._inputs.items() if each is None]
                held = HeldRank(self._arguments, found, missing, sorted(self._directories))
                with suppress(OSError):  # of a full disk; the keeper then does without this rank
                    write_json(self._file, held.to_json(), durable=False)
                with os.fdopen(self._pipe, "rb") as pipe:
                    line = pipe.readline()
                if not line.endswith(b"\n"):
                    os._exit(0)  # the keeper needs it no more
                os.environ.update(json.loads(line))
                for name, function in self._original.items():
                    setattr(os, name, function)
                self._begin()
                self._released = True

    @property
    def _is_own(self) -> bool:
        return getattr(self._busy, "depth", 0) > 0

    @contextmanager
    def _as_own(self) -> Iterator[None]:
        self._busy.depth = getattr(self._busy, "depth", 0) + 1
        try:
            yield
        finally:
            self._busy.depth -= 1

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        """The audit hook."""
        if self._released or self._is_own:
            return
        if not self._runs_script:
            self._runs_script = event == "exec"  # of the script, or of a package above its module
        elif event == "open":
            self._opened(args[0], args[2])
        elif event in ("os.listdir", "os.scandir"):
            if not sys._getframe(1).f_code.co_filename.startswith("<frozen importlib"):
                self._listed(args[0])
        elif event == "os.mkdir":
            if not self._is_directory(absolute_path(args[0])):
                self.hold()
        elif event in _EFFECTS:
            self.hold()

    def _listed(self, path: object) -> None:
        if isinstance(path, int):  # a descriptor, of whatever directory
            self.hold()
        else:
            self._read("." if path is None else path, lists=True)

    def _opened(self, path: object, flags: object) -> None:
        if isinstance(path, int):  # a descriptor, whose file was opened before
            return
        if isinstance(flags, int) and flags & _WRITING:
            if (absolute := absolute_path(path)) is None or not _is_ignored(absolute):
                self.hold()
            return
        self._read(path)

    def _is_directory(self, path: str | None) -> bool:
        """Whether it is one, which the script now relies on."""
        with self._as_own():
            if path is None or not os.path.isdir(path):  # noqa: PTH112  # the original function of ``os``
                return False
        self._directories.add(path)
        return True

    def _read(self, path: object, *, lists: bool = False) -> None:
        """Note an input; hold where the job may have changed it, or may yet do so. ``lists``: the entries matter."""
        absolute = absolute_path(path)
        if absolute is None or _is_ignored(absolute) or (not lists and self._is_directory(absolute)):
            return
        with self._as_own():
            version = version_of(absolute)
        is_recent = version is not None and version.modified >= self._changed_since
        if is_recent or len(self._inputs) >= MAX_INPUTS:
            self.hold()
        else:
            self._inputs.setdefault(absolute, version)

    def _noting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def note_and_call(path: Any, *args: Any, **kwargs: Any) -> Any:
            watched = self._runs_script and not self._released and not self._is_own
            if watched and kwargs.get("dir_fd") is not None:
                self.hold()
            elif watched and not isinstance(path, int):
                self._read(path)
            return function(path, *args, **kwargs)

        return note_and_call

    def _holding(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def hold_and_call(*args: Any, **kwargs: Any) -> Any:
            self.hold()
            return function(*args, **kwargs)

        return hold_and_call


def _is_ignored(path: str) -> bool:
    return path.startswith(IGNORED) or any(part in path for part in _IGNORED_PARTS)
