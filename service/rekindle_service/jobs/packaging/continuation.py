"""A job that continues another: new code, with the files that the old job's script wrote and its snapshots."""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from rekindle.contract.files import atomic_write, fsync_directory
from rekindle.contract.locks import lock_holder
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.snapshot_dir import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    NO_SNAPSHOTS,
    BadSnapshotError,
    Manifest,
    SnapshotDir,
    step_of,
)
from rekindle.contract.safe_open import directory_beneath, open_directory, open_regular
from rekindle.contract.states import TERMINAL, JobIntent, JobState
from rekindle_service.config.home import Home
from rekindle_service.jobs.packaging.code_copy import EXCLUDED, CodeCopyError, CodeTree, copy_content
from rekindle_service.jobs.packaging.code_manifest import (
    CodeFile,
    describe,
    describe_file,
    describe_link,
    read_manifest,
)
from rekindle_service.run_readers.stored_snapshots import next_checkpoint_bytes, read_snapshots
from rekindle_service.store.tables import Job
from rekindle_service.submission import FieldError, SubmissionError

_FIELD = "continue_from"
_NAMED_CONFLICTS = 5
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def check_stopped(job: Job | None, job_id: str, home: Home) -> list[FieldError]:
    """A job that may write any moment cannot be continued by another."""
    if job is None:
        return [FieldError(_FIELD, "must name a job that exists", job_id, "list them with: rekindle ps -a")]
    held = job.state is JobState.QUEUED and job.intent is not JobIntent.RUN
    if job.state not in TERMINAL and not held:
        what_to_do = f"rekindle drain {job.number} (or cancel), then rekindle wait {job.number}, then submit again"
        return [FieldError(_FIELD, f"must have stopped, and job {job.number} is {job.state}", job_id, what_to_do)]
    if lock_holder(home.run_dir(job.id).keeper_lock) is not None:
        rule = f"must have stopped, and the keeper of job {job.number} is still ending it"
        return [FieldError(_FIELD, rule, job_id, "submit again in a minute")]
    return []


@dataclass(frozen=True, slots=True)
class _Written:
    """A regular file, or a link with its text, in an open directory of the old run, which its job may still change."""

    tree: CodeTree
    path: Path  # in ``tree``
    status: os.stat_result
    link: str | None

    def describe(self) -> CodeFile:
        """Raises CodeCopyError where it is another one by now, and OSError."""
        if self.link is not None:
            return describe_link(self.link)
        with self.tree.open(self.path, self.status) as file:
            return describe_file(file)

    def is_same(self, submitted: CodeFile) -> bool:
        return self.status.st_size == submitted.bytes and self.describe() == submitted


@dataclass(frozen=True, slots=True)
class _NewRun:
    """The new run directory, held open: the links that a person has put into the code are not followed, either."""

    root: int

    def status(self, path: Path) -> os.stat_result | None:
        """None where nothing is. Raises NotADirectoryError where a link or a file is on the way, and OSError."""
        try:
            parent = open_directory(path.parent, self.root)
        except FileNotFoundError:
            return None
        try:
            return os.stat(path.name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None
        finally:
            os.close(parent)

    @contextmanager
    def place(self, path: Path) -> Iterator[int]:
        """The open directory for a new file at ``path``, also in the place of one that the script had changed."""
        parent = os.dup(self.root)
        try:
            for part in path.parent.parts:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=parent)
                inner = open_directory(Path(part), parent)
                os.close(parent)
                parent = inner
            with suppress(FileNotFoundError):
                os.unlink(path.name, dir_fd=parent)  # relative to a descriptor
            yield parent
        finally:
            os.close(parent)

    def make(self, path: Path, written: _Written) -> None:
        """Copy the file with its times, by which the latest checkpoint is found."""
        with self.place(path) as parent:
            if written.link is not None:
                os.symlink(written.link, path.name, dir_fd=parent)
                return
            with written.tree.open(written.path, written.status) as reader:
                fd = os.open(path.name, _NEW, 0o600, dir_fd=parent)
                with os.fdopen(fd, "wb") as writer:
                    copy_content(reader, writer, written.status)

    def sync(self, directory: Path) -> None:
        fd = open_directory(directory, self.root)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@dataclass(slots=True)
class _Transfer:
    """What is to be brought over, by its path in the new run directory."""

    written: dict[Path, _Written] = field(default_factory=dict)
    conflicts: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(each.status.st_size for each in self.written.values())


def continue_run(old: RunDir, new: RunDir, job_id: str, last_step: int | None = None) -> None:
    """Bring what the script of ``old`` wrote, and the snapshots, to ``new``, which has its own code already.

    ``last_step``: of the snapshot from which ``new`` continues; later ones are not brought.

    A file is the script's if it was not submitted, or has changed since. Where both the script and a person have
    changed a submitted file, the person's is used; a file that both have made is refused. Precondition: no process
    of ``old`` runs; one that does nevertheless, having reported its end, gains nothing by swapping files for links.
    Raises SubmissionError, CodeCopyError where that happens, and OSError of the copying.
    """
    require_snapshot(old, last_step)
    transfer = _Transfer()
    with (
        directory_beneath(old.root, old.root) as old_root,
        directory_beneath(new.root, new.root) as new_root,
        _opened(CodeTree(old.root, old_root), Path(old.code.name)) as code,
        _opened(CodeTree(old.root, old_root), Path(old.snapshots.name)) as snapshots,
    ):
        target = _NewRun(new_root)
        _find_written_files(code, old, new, target, transfer)
        _find_own_checkpoints(snapshots, new, transfer)
        if transfer.conflicts:
            names = ", ".join(transfer.conflicts[:_NAMED_CONFLICTS])
            hint = "exclude it from the code (--exclude), and the job's is used; or rename the one in the code"
            raise SubmissionError(
                [FieldError(_FIELD, f"wrote files that are in the new code, too: {names}", old.job_id, hint)]
            )
        _require_room(transfer.bytes + next_checkpoint_bytes(old), old, new)
        for path, written in transfer.written.items():
            target.make(path, _with_inner_link(written, old, new))
        _link_snapshots(snapshots, new, job_id, last_step)
        for directory in {path.parent for path in transfer.written}:
            target.sync(directory)


@contextmanager
def _opened(parent: CodeTree, path: Path) -> Iterator[CodeTree | None]:
    """None where there is no such directory: of snapshots, where the job never started, or where it has made a link."""
    try:
        fd = open_directory(path, parent.directory)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    try:
        yield CodeTree(parent.root / path, fd)
    finally:
        os.close(fd)


def _find_written_files(code: CodeTree | None, old: RunDir, new: RunDir, target: _NewRun, transfer: _Transfer) -> None:
    manifest, taken = read_manifest(old), read_manifest(new)
    submitted = {} if manifest is None else manifest.files
    current = {} if taken is None else taken.files
    for written in _files(code):
        name, path = str(written.path), new.code.relative_to(new.root) / written.path
        before, now = submitted.get(name), current.get(name)
        if before is not None and (written.is_same(before) or now not in (None, before)):
            continue
        try:
            found = target.status(path)
        except NotADirectoryError:
            transfer.conflicts.append(name)
            continue
        if before is None and found is not None:
            same = stat.S_IFMT(found.st_mode) == stat.S_IFMT(written.status.st_mode)
            if manifest is not None and not (same and written.is_same(describe(new.root / path))):
                transfer.conflicts.append(name)
            continue
        transfer.written[path] = written


def _find_own_checkpoints(snapshots: CodeTree | None, new: RunDir, transfer: _Transfer) -> None:
    """What the script itself saved in the snapshot directory."""
    for written in _files(snapshots):
        first = written.path.parts[0]
        if step_of(first) is None and not first.startswith(NO_SNAPSHOTS):
            transfer.written[new.snapshots.relative_to(new.root) / written.path] = written


def _files(tree: CodeTree | None) -> Iterator[_Written]:
    """Regular files and links below, but for caches and compiled files. Raises OSError."""
    directories = [] if tree is None else [Path()]
    while tree is not None and directories:
        directory = directories.pop()
        fd = open_directory(directory, tree.directory)
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    path, status = directory / entry.name, entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        directories += [] if entry.name in EXCLUDED else [path]
                    elif not entry.name.endswith(".pyc") and stat.S_ISLNK(status.st_mode):
                        yield _Written(tree, path, status, os.readlink(entry.name, dir_fd=fd))
                    elif not entry.name.endswith(".pyc") and stat.S_ISREG(status.st_mode):
                        yield _Written(tree, path, status, None)
        finally:
            os.close(fd)


def _with_inner_link(written: _Written, old: RunDir, new: RunDir) -> _Written:
    """A link into the old run directory leads into the new one."""
    if written.link is None or not Path(written.link).is_relative_to(old.root):
        return written
    final = new.root.with_name(new.root.name.removeprefix(".new-"))
    return replace(written, link=str(final / Path(written.link).relative_to(old.root)))


def _require_room(needed: int, old: RunDir, new: RunDir) -> None:
    free = shutil.disk_usage(new.root).free
    if needed > free:
        rule = (
            f"takes {needed / 1e6:,.0f} MB, with the new job's first checkpoint, and {free / 1e6:,.0f} MB are free on "
            f"the disk of {new.root.parent}"
        )
        raise SubmissionError(
            [FieldError(_FIELD, rule, old.job_id, "free some space: rekindle delete removes ended jobs")]
        )


def require_snapshot(old: RunDir, step: int | None) -> None:
    """Raises SubmissionError where there is no whole snapshot of ``step``."""
    if step is None:
        return
    whole = [each.step for each in read_snapshots(old.root, old.snapshots) if each.verified]
    if step not in whole:
        found = f"of job {old.job_id}; it has those of the steps {', '.join(map(str, sorted(whole)[-10:])) or '(none)'}"
        raise SubmissionError([FieldError("continue_step", f"must be the step of a snapshot {found}", step)])


def _link_snapshots(snapshots: CodeTree | None, new: RunDir, job_id: str, last_step: int | None) -> None:
    """Link the files: a committed snapshot is never written to again. The manifest is the new job's own."""
    names = [] if snapshots is None else os.listdir(snapshots.directory)  # noqa: PTH208  # by descriptor
    for name in names:
        step = step_of(name)
        if snapshots is None or step is None or (last_step is not None and step > last_step):
            continue
        with _opened(snapshots, Path(name)) as tree:
            if tree is not None:
                _link_snapshot(tree, SnapshotDir(new.snapshots).path(step), job_id)
    if new.snapshots.is_dir():
        fsync_directory(new.snapshots)


def _link_snapshot(tree: CodeTree, target: Path, job_id: str) -> None:
    """Nothing, where a file is missing or is none. Raises CodeCopyError and OSError."""
    try:
        with open_regular(MANIFEST, tree.directory) as file:
            manifest = Manifest.parse(file.read(MAX_MANIFEST_BYTES))
        found = {name: os.stat(name, dir_fd=tree.directory, follow_symlinks=False) for name in manifest.files}
    except (FileNotFoundError, BadSnapshotError):
        return
    if all(stat.S_ISREG(status.st_mode) for status in found.values()):
        target.mkdir(mode=0o700, parents=True)
        for name, status in found.items():
            _link(tree, name, status, target / name)
        atomic_write(target / MANIFEST, replace(manifest, job_id=job_id).encoded())


def _link(tree: CodeTree, name: str, found: os.stat_result, target: Path) -> None:
    try:
        os.link(name, target, src_dir_fd=tree.directory, follow_symlinks=False)
    except PermissionError:  # a file system without hard links
        with tree.open(Path(name), found) as reader, target.open("xb") as writer:
            copy_content(reader, writer, found)
    else:
        if not os.path.samestat(target.lstat(), found):
            raise CodeCopyError("must not change while it is copied", f"{name} did: submit again")
