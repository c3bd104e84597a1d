"""``python -m rekindle_service.mirror.copier``: the process that copies one job off the box.

It may be killed at any instant: what is copied is what the remote index says. It reads a job's files as untrusted ones,
gives way to every other process, and ends when a run has ended and all of it is copied, at an error, and where neither
a server nor a keeper needs it any more.
"""

import fnmatch
import hashlib
import json
import math
import os
import signal
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import psutil

from rekindle.contract.files import write_json
from rekindle.contract.job import JobSpec
from rekindle.contract.locks import ExclusiveLock, LockHeldError, lock_holder
from rekindle.contract.run_dir.journal import JobEnded, read_journal
from rekindle.contract.run_dir.snapshot_dir import MANIFEST, MAX_MANIFEST_BYTES, Manifest, SnapshotDir, read_pins
from rekindle.contract.safe_open import file_version, open_beneath, read_small, regular_size
from rekindle_service.config.home import Home
from rekindle_service.jobs.packaging.code_manifest import read_manifest
from rekindle_service.mirror.remote import CODE, PART, Index, Remote, StoredFile, StoredSnapshot
from rekindle_service.mirror.state import MirrorState, read_state
from rekindle_service.run_readers.stored_snapshots import SnapshotInfo, read_snapshots

OTHER_COPIER = 3
"""Exit code where another copier of the job runs."""

_POLL = 1.0  # seconds between two looks at the snapshots
_FILES = 60.0  # seconds between two looks at logs and checkpoints of the script's own
_SHARE = 0.01  # of the cores that a training needs
_AUTOGROUP = Path("/proc/self/autogroup")  # the nice value of the session
_ANSWER_SECONDS = 300  # after which the connection counts as lost
_LOGS = ("*/agent*.log", "*/ranks/*/*.log", "*/ranks/*/metrics.jsonl", "*/ranks/*/digests.jsonl")  # of all attempts
_MAX_FILES = 10_000
_MB = 1e6


class _ChangedError(Exception):
    """A file was deleted or changed while it was copied."""


class Copier:
    """Copies what the spec of a job asks for."""

    def __init__(self, home: Home, job_id: str, number: int, spec: JobSpec) -> None:
        """Read what is remote. Raises MirrorError, and what back ends raise, as all methods do."""
        self._spec, self._run_dir, self._path = spec, home.run_dir(job_id), home.mirror(job_id)
        base = spec.mirror or ""
        self._state = replace(read_state(home, job_id) or MirrorState(""), url=f"{base.rstrip('/')}/{job_id}")
        write_json(self._path, self._state.to_json())
        self._remote = Remote(base, job_id)
        self._remote.prepare()
        found = self._remote.read_index() or Index(job_id, number, {})
        self._index = replace(found, spec=spec.to_json())
        self._sizes = self._remote.sizes()
        self._known = self._index.parts()  # that were proven to be there
        self._damaged: set[int] = set()  # steps of snapshots that fail their checksums on this machine
        self._seen: dict[Path, tuple[int, ...]] = {}  # versions of files at the last look
        self._copied: dict[Path, tuple[int, ...]] = {}
        self._looked = float("-inf")
        self._read = self._ended = 0  # bytes of the journal, and those up to the end of its latest run; 0: it runs

    def run(self, server: int, is_over: Callable[[], bool]) -> None:
        """Copy until nothing more can come. ``server``: its pid; ``is_over``: whether it knows that the run is over."""
        while self._run_dir.root.exists():
            for record in read_journal(self._run_dir.journal, self._read):
                self._read, self._ended = record.end, record.end if isinstance(record, JobEnded) else 0
            ended = regular_size(self._run_dir.journal) if is_over() else self._ended
            while self._copy_next():
                pass
            if ended or time.monotonic() - self._looked >= _FILES:
                self._copy_files(ended=bool(ended))
            if ended and ended != regular_size(self._run_dir.journal):
                continue  # the next run has begun
            self._show(journal=ended)
            if ended or (os.getppid() != server and lock_holder(self._run_dir.keeper_lock) is None):
                return
            time.sleep(_POLL)

    def _show(self, **changes: Any) -> None:
        """What is copied, and that it works."""
        state = replace(self._state, **{"steps": self._index.steps, "error": None, "since": None, **changes})
        if state != self._state:
            self._state = state
            write_json(self._path, state.to_json())

    # --- snapshots

    def _copy_next(self) -> bool:
        """Copy the latest snapshot, or else the best or a pinned one; False where each is copied."""
        found = read_snapshots(self._run_dir.root, self._run_dir.snapshots)
        found = [each for each in found if each.verified and each.step not in self._damaged]
        pinned = read_pins(self._run_dir.pins)
        chosen = [each.step for each in found if each is found[0] or each.best or each.step in pinned]
        for step in chosen:
            path = SnapshotDir(self._run_dir.snapshots).path(step) / MANIFEST
            text = (read_small(self._run_dir.root, path, MAX_MANIFEST_BYTES) or b"").decode()
            if text and all(stored.manifest != text for stored in self._index.snapshots):
                with suppress(_ChangedError):  # retention has deleted it
                    self._copy_snapshot(path.parent, text, found, chosen)
                return True
        return False

    def _copy_snapshot(self, directory: Path, text: str, found: Sequence[SnapshotInfo], chosen: Sequence[int]) -> None:
        """Later steps than this machine has are of a training that was rolled back, or lost: they go first."""
        manifest = Manifest.parse(text.encode())
        files: dict[str, StoredFile] = {}
        for name, record in manifest.files.items():
            files[name], sha256 = self._send(directory / name)
            if sha256 != record.sha256:
                self._damaged.add(manifest.step)
                return
        stored = [StoredSnapshot(manifest.step, text, files)]
        stored += [each for each in self._index.snapshots if each.step != manifest.step]
        stored.sort(key=lambda each: (each.step > found[0].step, -each.step))
        kept = [each for i, each in enumerate(stored) if i < self._spec.mirror_keep or each.step in chosen]
        self._publish(replace(self._index, snapshots=kept))

    # --- files

    def _copy_files(self, *, ended: bool) -> None:
        """Code, journal, logs and the chosen files; those that a rank may be writing at the moment come later."""
        self._looked = time.monotonic()
        files = dict(self._index.files)
        if CODE not in files and (code := self._pack_code()) is not None:
            with code:
                files[CODE], _ = self._send_open(code)
        for path, is_log in self._paths():
            if (version := file_version(path)) is None:
                continue
            is_still = is_log or ended or self._seen.get(path) == version
            self._seen[path] = version
            if is_still and self._copied.get(path) != version:
                with suppress(_ChangedError):
                    sent, _ = self._send(path)
                    if is_log or file_version(path) == version:
                        files[str(path.relative_to(self._run_dir.root))] = sent
                        self._copied[path] = version
        if files != self._index.files:
            self._publish(replace(self._index, files=files))

    def _paths(self) -> Iterator[tuple[Path, bool]]:
        """What to copy, and whether lines are only ever appended to the file."""
        yield self._run_dir.journal, True
        for pattern in _LOGS:
            yield from ((path, True) for path in self._run_dir.attempts.glob(pattern))
        code, patterns, count = self._run_dir.code, self._spec.mirror_files, 0
        for directory, _, names in os.walk(code) if patterns else ():
            for path in (Path(directory) / name for name in names):
                if any(fnmatch.fnmatch(str(path.relative_to(code)), each) for each in patterns) and count < _MAX_FILES:
                    count += 1
                    yield path, False

    def _pack_code(self) -> IO[bytes] | None:
        """An archive of the code that was submitted; links that lead out of it cannot travel."""
        if (manifest := read_manifest(self._run_dir)) is None:
            return None
        packed = tempfile.TemporaryFile()  # noqa: SIM115  # the caller reads it
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
            for name in sorted(manifest.files):
                path, entry = self._run_dir.code / name, tarfile.TarInfo(name)
                if path.is_symlink():
                    entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
                    if Path(os.path.normpath(path.parent / entry.linkname)).is_relative_to(self._run_dir.code):
                        archive.addfile(entry)
                elif (file := open_beneath(self._run_dir.root, path)) is not None:
                    with file:
                        entry.size = os.fstat(file.fileno()).st_size
                        archive.addfile(entry, file)
        packed.seek(0)
        return packed

    # --- parts

    def _send(self, path: Path) -> tuple[StoredFile, str]:
        """Send a file, and return its digest. Raises _ChangedError where it is gone."""
        if (file := open_beneath(self._run_dir.root, path)) is None:
            raise _ChangedError
        with file:
            return self._send_open(file)

    def _send_open(self, file: IO[bytes]) -> tuple[StoredFile, str]:
        whole, parts, size = hashlib.sha256(), [], 0
        while data := file.read(PART):
            whole.update(data)
            size += len(data)
            parts.append(digest := hashlib.sha256(data).hexdigest())
            if digest not in self._known:
                begin = time.monotonic()
                try:
                    with limited_time():
                        self._remote.put(digest, data, self._sizes.get(digest))
                except OSError:  # perhaps it is full of parts of snapshots that are gone
                    with suppress(OSError):
                        self._remove_parts(self._sizes.keys() - self._known)
                    raise
                self._known.add(digest)
                self._sizes[digest] = len(data)
                if self._spec.mirror_limit is not None:
                    time.sleep(max(0.0, len(data) / _MB / self._spec.mirror_limit - (time.monotonic() - begin)))
        return StoredFile(size, parts), whole.hexdigest()

    def _publish(self, index: Index) -> None:
        """Write ``index``, then remove the parts that it does not need."""
        with limited_time():
            self._remote.write_index(index)
        self._index = index
        self._remove_parts(self._sizes.keys() - index.parts())
        self._show()

    def _remove_parts(self, names: Collection[str]) -> None:
        for name in names:
            with limited_time():
                self._remote.remove_part(name)
            del self._sizes[name]
            self._known.discard(name)


def describe(error: BaseException) -> str:
    """One line for people, with the class where the message alone says too little."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    text = next(iter(str(error).strip().splitlines()), "")[:300]
    return text if " " in text else f"{type(error).__name__} {text}".strip()


@contextmanager
def limited_time() -> Iterator[None]:
    """Raise TimeoutError in the block where it takes too long: a lost connection may never answer."""
    signal.signal(signal.SIGALRM, _time_out)
    signal.alarm(_ANSWER_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def give_way() -> None:
    """Take at most ``_SHARE`` of the cores from others, however many wait for them now.

    The kernel weighs sessions by 1.25 ** -nice, and processes only within one: see sched(7) on autogroups.
    """
    cores = len(os.sched_getaffinity(0))
    share = min(0.5, _SHARE * cores)  # of one core, all that one thread can take
    others = max(1.0, os.getloadavg()[0] / cores)  # on that core
    nice = max(0, min(19, math.ceil(math.log((1 - share) / share / others, 1.25))))
    os.nice(nice)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            _AUTOGROUP.write_text(str(nice))
    with suppress(psutil.Error, OSError):
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)


def _time_out(*_: object) -> None:
    raise TimeoutError(f"no answer for {_ANSWER_SECONDS} seconds")


def main() -> int:
    """Read the task, as ``Mirrors`` writes it, from standard input; SIGTERM sets ``over``."""
    task = json.loads(sys.stdin.buffer.read())
    signal.signal(signal.SIGTERM, lambda *_: task.update(over=True))
    home, job_id, spec = Home(Path(task["home"])), task["job_id"], JobSpec.from_json(task["spec"])
    try:
        lock = ExclusiveLock(home.mirror_lock(job_id))
    except LockHeldError:
        return OTHER_COPIER
    try:
        with limited_time():
            copier = Copier(home, job_id, task["number"], spec)
        give_way()  # only now: imports, with a percent of a core, would take a minute
        copier.run(task["server"], lambda: task["over"])
    except Exception as error:  # noqa: BLE001  # back ends raise what they like, and the training goes on
        state = read_state(home, job_id) or MirrorState(spec.mirror or "")
        failed = replace(state, error=describe(error), since=state.since or time.time())
        write_json(home.mirror(job_id), failed.to_json())
        return 1
    finally:
        lock.release()
    return 0


if __name__ == "__main__":
    sys.exit(main())
