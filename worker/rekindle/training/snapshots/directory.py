"""The snapshot directory as training changes it: moves that survive a kill at any point, and snapshots verified."""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rekindle.contract.files import atomic_write, fsync_directory
from rekindle.contract.run_dir.snapshot_dir import (
    MANIFEST,
    BadSnapshotError,
    Manifest,
    SnapshotDir,
    SnapshotFile,
    SnapshotScore,
    read_pins,
    step_name,
    step_of,
)

T = TypeVar("T")

CACHE_TIMEOUT = 75.0  # seconds: a client of NFS keeps names, also absent ones, and sizes for 60 by default
_FIRST_PAUSE, _MAX_PAUSE = 0.05, 10.0  # seconds between two tries


class HiddenError(BadSnapshotError):
    """Raised for missing, short or other bytes: damage, or what a network file system hides for a while."""


@dataclass(frozen=True, slots=True)
class SnapshotStorage(SnapshotDir):
    """The snapshot directory as rank 0 changes it; other ranks use ``temporary`` alone.

    ``generation`` is part of the name of what this launch has not finished; ``pins`` is the file with the
    steps that are never deleted, where there is a server to write it.
    """

    generation: str
    pins: Path | None = None

    def temporary(self, step: int) -> Path:
        return self._marked("tmp", step)

    def scores(self) -> dict[int, SnapshotScore]:
        """Read the scores of the snapshots that have one, by step."""
        manifests = (self.manifest(step) for step in self.steps())
        return {found.step: found.score for found in manifests if found is not None and found.score is not None}

    def publish(self, step: int) -> None:
        """Turn ``temporary(step)`` into the snapshot of ``step``, durably, in place of an earlier one."""
        old = self._marked("old", step)
        if self.path(step).exists():
            self.path(step).rename(old)
        try:
            self.temporary(step).rename(self.path(step))
        except OSError:
            if not self._was_renamed(step):
                if old.exists():
                    old.rename(self.path(step))
                raise
        fsync_directory(self.root)
        shutil.rmtree(old, ignore_errors=True)

    def discard(self, step: int) -> None:
        """Delete what was written for ``step`` and not published."""
        shutil.rmtree(self.temporary(step), ignore_errors=True)

    def quarantine(self, step: int) -> None:
        """Rename a bad snapshot, so that a person can examine it; does nothing where the disk refuses changes."""
        shutil.rmtree(self.quarantine_path(step), ignore_errors=True)
        with suppress(OSError):
            self.path(step).rename(self.quarantine_path(step))
            fsync_directory(self.root)

    def prune(self, keep: int, best: int | None = None) -> None:
        """Delete all but the latest ``keep``, that of step ``best`` and pinned ones; quarantined ones if older.

        Precondition: the latest snapshot is known to be intact; at least that one stays.
        """
        steps = self.steps()
        kept = steps[: max(keep, 1)]
        if not kept:
            return
        for step in steps[len(kept) :]:
            if step != best and not self._is_pinned(step):
                self._delete(step)
        for step in self.quarantined():
            if step < kept[-1] and not self._is_pinned(step):
                shutil.rmtree(self.quarantine_path(step), ignore_errors=True)

    def clean_leftovers(self) -> None:
        """Remove what other generations left unfinished, as far as the disk allows it.

        Only the one generation that may commit calls this.
        """
        if not self.root.is_dir():
            return
        for entry in self.root.iterdir():
            mark, _, rest = entry.name.partition("-")
            if mark not in (".tmp", ".old", ".trash") or rest.startswith(f"{self.generation}-"):
                continue
            snapshot = self.root / rest.rpartition("-")[2]
            needed = mark == ".old" or (mark == ".trash" and self._is_pinned(step_of(snapshot.name)))
            if needed and not snapshot.exists():  # the kill came between two renames of ``publish`` or ``_delete``
                with suppress(OSError):
                    entry.rename(snapshot)
            else:
                shutil.rmtree(entry, ignore_errors=True)

    def _delete(self, step: int) -> None:
        """Delete a snapshot so that a pin that arrives meanwhile is either seen here, or finds it gone."""
        trash = self._marked("trash", step)
        self.path(step).rename(trash)
        if self._is_pinned(step):
            trash.rename(self.path(step))
        else:
            shutil.rmtree(trash, ignore_errors=True)

    def _is_pinned(self, step: int | None) -> bool:
        return self.pins is not None and step in read_pins(self.pins)

    def _was_renamed(self, step: int) -> bool:
        """True where a network file system has renamed and lost the answer, so that the second try finds nothing."""
        refresh(self.root)
        return self.path(step).exists() and not self.temporary(step).exists()

    def _marked(self, mark: str, step: int) -> Path:
        return self.root / f".{mark}-{self.generation}-{step_name(step)}"


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Complete ``directory``, whose files must be on disk already."""
    atomic_write(directory / MANIFEST, manifest.encoded())


def verify(directory: Path, *, step: int, job_id: str | None, timeout: float = 0.0) -> Manifest:
    """Read every byte of the snapshot in ``directory`` and return its manifest.

    ``timeout``: seconds in which what another machine has written may become visible here.

    Raises BadSnapshotError where it is damaged or belongs to another job, and OSError where the disk does not return
    it: a network file system may be away, or too many files be open, and the snapshot is as good as ever.

    ``torch.load`` notices neither a flipped bit nor a page of zeros, so nothing is loaded that was not checked here.
    """

    def check() -> Manifest:
        manifest = _read_manifest(directory)
        if manifest.step != step:
            raise BadSnapshotError(f"its manifest has step {manifest.step}, its directory {step}")
        if None not in (manifest.job_id, job_id) and manifest.job_id != job_id:
            raise BadSnapshotError(f"it belongs to job {manifest.job_id}, this is job {job_id}")
        _verify_files(directory, manifest.files)
        return manifest

    return await_visible(check, directory, timeout)


def verify_files(
    directory: Path, files: Mapping[str, SnapshotFile], *, content: bool = True, timeout: float = 0.0
) -> None:
    """Verify ``files`` alone, like ``verify``: what rank 0 has verified, as another machine sees it.

    Without ``content`` only that they are there, and their sizes.
    """
    await_visible(lambda: _verify_files(directory, files, content=content), directory, timeout)


def await_visible(check: Callable[[], T], directory: Path, timeout: float) -> T:
    """Call ``check`` again, for ``timeout`` seconds, while it finds too little in ``directory``; return its result.

    A network file system promises that who opens a file sees what was written before it was closed (close-to-open), but
    a name looked up too early may stay absent until its directory is opened again. Raises what ``check`` does.
    """
    deadline, pause = time.monotonic() + timeout, _FIRST_PAUSE
    while True:
        try:
            return check()
        except HiddenError:
            if time.monotonic() + pause > deadline:
                raise
        refresh(directory.parent)
        refresh(directory)
        time.sleep(pause)
        pause = min(2 * pause, _MAX_PAUSE)


def make_directory(directory: Path, timeout: float) -> None:
    """Make what another machine may make at the same time; its name can stay hidden here for ``timeout`` seconds."""

    def check() -> None:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError as error:  # and yet no directory is seen
            raise HiddenError(str(error)) from error

    await_visible(check, directory, timeout)


def refresh(directory: Path) -> None:
    """Have the names in ``directory`` asked from the server of a network file system: opening it does that."""
    with suppress(OSError), os.scandir(directory) as entries:
        next(entries, None)


def _read_manifest(directory: Path) -> Manifest:
    try:
        return Manifest.parse((directory / MANIFEST).read_bytes())
    except FileNotFoundError as error:
        raise HiddenError(f"{MANIFEST} is missing") from error
    except (NotADirectoryError, IsADirectoryError) as error:
        raise BadSnapshotError(f"it cannot be read: {error}") from error


def _verify_files(directory: Path, files: Mapping[str, SnapshotFile], *, content: bool = True) -> None:
    for name, record in files.items():
        try:
            _verify_file(directory, name, record, content=content)
        except FileNotFoundError as error:
            raise HiddenError(f"{name} is missing") from error
        except (NotADirectoryError, IsADirectoryError) as error:
            raise BadSnapshotError(f"it cannot be read: {error}") from error


def _verify_file(directory: Path, name: str, record: SnapshotFile, *, content: bool = True) -> None:
    """Open the file before its size is asked: a network file system compares only an opened one with its server."""
    with (directory / name).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size != record.bytes:
            raise HiddenError(f"{name} has {size} bytes, its manifest says {record.bytes}")
        if not content:
            return
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != record.sha256:
        raise HiddenError(f"{name} fails its checksum")
