"""Records where a script writes files and which checkpoints it loads, without changing what the script sees.

How: an audit hook sees every ``open``, rename and started program of this process and its forks, for 0.7 µs each. It
sees nothing where C++ or Rust opens the file: ``torch.save`` to a path, and safetensors. There a function that these
modules use internally is replaced by one that records the path; the functions that scripts call stay as they are.
Programs that the script starts are not tracked: the keeper lists their directories instead.

The hook keeps no descriptor open, which a script that closes all of its own would reuse. It catches nothing but errors
of its own file: a signal handler of the script may raise while it runs, and that exception belongs to the script.
"""

import json
import os
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import Any

from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RankDir, RunDir
from rekindle.contract.run_dir.script_files import (
    ZIP,
    FileRecord,
    FileUse,
    Observations,
    ends_zip,
    name_pattern,
    previous_path,
)
from rekindle.rank.import_hooks import call_when_loaded, replacement

MAX_PATTERNS = 10_000  # of directory and name; what a script writes beyond them is not learned
MAX_LOADED = 1_000
_WRITING = os.O_WRONLY | os.O_RDWR
_STARTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.system", "os.exec"})
IGNORED = ("/dev/", "/proc/", "/sys/")
_IGNORED_PARTS = ("/__pycache__/", "/.cache/", "/torchinductor_", "/.triton/", "/wandb/", "/mlruns/", "/site-packages/")
_OVERWRITTEN = (".bin", ".ckpt", ".pt", ".pth", ".tar")
_SPARE_BYTES = 256 << 20  # that are left free


def track_files(run_dir: RunDir, rank_dir: RankDir) -> None:
    """Record from now on, until this process ends. Call it after the rank's output is captured."""
    observed = read_record(run_dir.observed, Observations)
    tracker = _Tracker(rank_dir, observed or Observations(), ignored=(*IGNORED, f"{run_dir.attempts}/"))
    tracker.record(FileUse.TRACKED, str(rank_dir.files))
    call_when_loaded(  # what opens files without an audit event
        [
            replacement("torch.serialization", "_open_zipfile_writer", partial(_noting, tracker.written, 0)),
            replacement("safetensors.torch", "serialize_file", partial(_noting, tracker.written, 1)),
            replacement("safetensors.torch", "safe_open", partial(_noting, tracker.loaded, 0)),
        ]
    )
    sys.addaudithook(tracker.on_event)


class _Tracker:
    """Records files within bounds: of those that differ only in numbers, the first one in a directory counts."""

    def __init__(self, rank_dir: RankDir, observed: Observations, ignored: tuple[str, ...]) -> None:
        self._log, self._ignored = str(rank_dir.files), ignored
        self._known = {path for checkpoint in observed.checkpoints for path in checkpoint.paths()}
        self._known_names = {path.rpartition("/")[2] for path in self._known}
        self._patterns: set[tuple[str, str]] = set()
        self._loaded: set[str] = set()
        self._spawned = False
        self._keeping = set[int]()  # threads whose events are this module's own

    def on_event(self, event: str, args: tuple[Any, ...]) -> None:
        """The audit hook."""
        if get_ident() in self._keeping:
            return
        if event == "open":
            path, _, flags = args
            if isinstance(flags, int) and flags & _WRITING:
                self.written(path, overwrites=bool(flags & os.O_TRUNC))
            elif self._known_names and isinstance(path, str) and path.rpartition("/")[2] in self._known_names:
                self.loaded(path)
        elif event == "os.rename":
            self.renamed(args[0], args[1])
        elif event in _STARTS and not self._spawned:
            self._spawned = True
            self.record(FileUse.SPAWNED, "")

    def written(self, path: object, *, overwrites: bool = True) -> None:
        if (absolute := self._absolute(path)) is None:
            return
        if overwrites and absolute.endswith(_OVERWRITTEN):
            self._keep_previous(absolute)
        if self._is_new(absolute):
            self.record(FileUse.WRITTEN, absolute)

    def _keep_previous(self, path: str) -> None:
        """Move away a complete checkpoint before it is overwritten, where both have space: a kill would leave none."""
        self._keeping.add(get_ident())
        try:
            status = os.lstat(path)
            space = os.statvfs(path)
            fits = space.f_bavail * space.f_frsize > status.st_size + _SPARE_BYTES
            if fits and stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and _is_whole(path, status.st_size):
                os.rename(path, previous_path(path))  # noqa: PTH104  # quicker
        except OSError:
            pass  # as where the directory cannot be written
        finally:
            self._keeping.discard(get_ident())

    def renamed(self, source: object, path: object) -> None:
        absolute, before = self._absolute(path), self._absolute(source)
        if absolute is not None and self._is_new(absolute):
            self.record(FileUse.RENAMED, absolute, before)

    def loaded(self, path: object) -> None:
        absolute = self._absolute(path)
        if absolute in self._known and absolute not in self._loaded and len(self._loaded) < MAX_LOADED:
            self._loaded.add(absolute)
            self.record(FileUse.LOADED, absolute)

    def record(self, use: FileUse, path: str, source: str | None = None) -> None:
        """Record in one write, which processes forked from the rank cannot interrupt. A full disk loses the line."""
        line = json.dumps(FileRecord(use, path, time.time(), source).to_json()).encode() + b"\n"
        with suppress(OSError):
            fd = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, line)
            finally:
                os.close(fd)

    def _is_new(self, path: str) -> bool:
        directory, _, name = path.rpartition("/")
        key = directory, name_pattern(name)
        if key in self._patterns or key[1] == "tmp#" or len(self._patterns) >= MAX_PATTERNS:
            return False
        self._patterns.add(key)
        return True

    def _absolute(self, path: object) -> str | None:
        """Absolute path; None for a file that is no checkpoint by where it is, and for what is no path."""
        absolute = None if path == self._log else absolute_path(path)
        if absolute is None or absolute.startswith(self._ignored) or any(part in absolute for part in _IGNORED_PARTS):
            return None
        return absolute


def absolute_path(path: object) -> str | None:
    """The path that an audit event names, with links as they are; None for what is no path."""
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str) or "\0" in path:
        return None
    if path.startswith("/") and "/." not in path:
        return path
    with suppress(OSError):  # the working directory was removed
        return os.path.abspath(path)  # noqa: PTH100  # which follows links: the script's own name counts
    return None


def _noting(note: Callable[[Any], None], position: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which notes its argument ``position``, a path, before it does anything."""

    def note_and_call(*args: Any, **kwargs: Any) -> Any:
        note(args[position] if len(args) > position else kwargs.get("filename"))
        return function(*args, **kwargs)

    return note_and_call


def _is_whole(path: str, size: int) -> bool:
    """Whether the file is one that ``torch.save`` has completed."""
    with open(path, "rb") as file:  # noqa: PTH123  # quicker
        return file.read(len(ZIP)) == ZIP and ends_zip(file, size)
