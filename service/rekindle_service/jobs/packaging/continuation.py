"""A job that continues another: new code, with the files that the old job's script wrote and its snapshots."""

import filecmp
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from rekindle.contract.files import atomic_write, fsync_directory
from rekindle.contract.locks import lock_holder
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.snapshots import MANIFEST, SnapshotDir, step_of
from rekindle.contract.safe_open import open_regular
from rekindle.contract.states import TERMINAL, JobIntent, JobState
from rekindle_service.config.home import Home
from rekindle_service.jobs.packaging.code_copy import EXCLUDED
from rekindle_service.jobs.packaging.code_diff import read_manifest
from rekindle_service.jobs.packaging.manifest import CodeFile, describe
from rekindle_service.jobs.submission import FieldError, SubmissionError
from rekindle_service.run_readers.snapshots import next_checkpoint_bytes, read_snapshots
from rekindle_service.store.tables import Job

_FIELD = "continue_from"
_INTERNAL = (".tmp-", ".old-", ".trash-", "quarantine-")  # of a snapshot directory; see ``contract.run_dir.snapshots``
_NAMED_CONFLICTS = 5


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


@dataclass(slots=True)
class _Transfer:
    """What is to be brought over, by its path in the new run directory."""

    files: dict[Path, Path] = field(default_factory=dict)
    links: dict[Path, str] = field(default_factory=dict)
    conflicts: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(source.stat().st_size for source in self.files.values())


def continue_run(old: RunDir, new: RunDir, job_id: str, last_step: int | None = None) -> None:
    """Bring what the script of ``old`` wrote, and the snapshots, to ``new``, which has its own code already.

    ``last_step``: of the snapshot from which ``new`` continues; later ones are not brought.

    A file is the script's if it was not submitted, or has changed since. Where both the script and a person have
    changed a submitted file, the person's is used; a file that both have made is refused. Precondition: no process
    of ``old`` runs. Raises SubmissionError, and OSError of the copying.
    """
    _require_snapshot(old, last_step)
    transfer = _Transfer()
    _find_written_files(old, new, transfer)
    _find_own_checkpoints(old, new, transfer)
    if transfer.conflicts:
        names = ", ".join(transfer.conflicts[:_NAMED_CONFLICTS])
        hint = "exclude it from the code (--exclude), and the job's is used; or rename the one in the code"
        raise SubmissionError(
            [FieldError(_FIELD, f"wrote files that are in the new code, too: {names}", old.job_id, hint)]
        )
    _require_room(transfer.bytes + next_checkpoint_bytes(old), old, new)
    for target, source in transfer.files.items():
        _make_room(target)
        _copy(source, target)
    for target, text in transfer.links.items():
        _make_room(target)
        target.symlink_to(text)
    _link_snapshots(old, new, job_id, last_step)
    for directory in {target.parent for target in [*transfer.files, *transfer.links]}:
        fsync_directory(directory)


def _find_written_files(old: RunDir, new: RunDir, transfer: _Transfer) -> None:
    manifest, taken = read_manifest(old), read_manifest(new)
    submitted = {} if manifest is None else manifest.files
    current = {} if taken is None else taken.files
    for path in _files(old.code):
        name = str(path.relative_to(old.code))
        before, now = submitted.get(name), current.get(name)
        if before is not None and (_is_unchanged(path, before) or now not in (None, before)):
            continue
        target = new.code / name
        if before is None and os.path.lexists(target):
            same = path.is_file() and target.is_file() and filecmp.cmp(path, target, shallow=False)
            if manifest is not None and not same:
                transfer.conflicts.append(name)
            continue
        _add(transfer, path, target, old, new)


def _find_own_checkpoints(old: RunDir, new: RunDir, transfer: _Transfer) -> None:
    """What the script itself saved in the snapshot directory."""
    for path in _files(old.snapshots):
        name = path.relative_to(old.snapshots)
        if step_of(name.parts[0]) is None and not name.parts[0].startswith(_INTERNAL):
            _add(transfer, path, new.snapshots / name, old, new)


def _files(directory: Path) -> Iterator[Path]:
    """Regular files and links below, but for caches and compiled files. Raises OSError."""
    if directory.is_symlink() or not directory.is_dir():  # of snapshots, where the job never started
        return
    for parent, directories, names in os.walk(directory, onerror=_raise):
        directories[:] = [name for name in directories if name not in EXCLUDED]
        links = [name for name in directories if Path(parent, name).is_symlink()]
        for path in (Path(parent, name) for name in [*names, *links] if not name.endswith(".pyc")):
            if stat.S_ISREG(path.lstat().st_mode) or path.is_symlink():
                yield path


def _raise(error: OSError) -> None:
    raise error


def _is_unchanged(path: Path, submitted: CodeFile) -> bool:
    return path.lstat().st_size == submitted.bytes and describe(path) == submitted


def _add(transfer: _Transfer, path: Path, target: Path, old: RunDir, new: RunDir) -> None:
    """A link into the old run directory leads into the new one."""
    if path.is_symlink():
        text = path.readlink()
        inner = text.is_absolute() and text.is_relative_to(old.root)
        final = new.root.with_name(new.root.name.removeprefix(".new-"))
        transfer.links[target] = str(final / text.relative_to(old.root) if inner else text)
    else:
        transfer.files[target] = path


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


def _make_room(target: Path) -> None:
    """For a file in the place of a submitted one that the script had changed."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target.unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    """With its times, by which the latest checkpoint is found. Blocks are shared where the file system can."""
    with open_regular(source) as reader, target.open("xb") as writer:
        try:
            while os.copy_file_range(reader.fileno(), writer.fileno(), 1 << 30):
                pass
        except OSError:
            shutil.copyfileobj(reader, writer, 1 << 20)
        writer.flush()
        shutil.copystat(source, target, follow_symlinks=False)
        os.fsync(writer.fileno())


def _is_plain(path: Path) -> bool:
    """A file or directory, and no link that the job has put there to something that it cannot read itself."""
    mode = path.lstat().st_mode if os.path.lexists(path) else 0
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except PermissionError:  # a file system without hard links
        _copy(source, target)


def _require_snapshot(old: RunDir, step: int | None) -> None:
    """Raises SubmissionError where there is no whole snapshot of ``step``."""
    if step is None:
        return
    whole = [each.step for each in read_snapshots(old.root, old.snapshots) if each.verified]
    if step not in whole:
        found = f"of job {old.job_id}; it has those of the steps {', '.join(map(str, sorted(whole)[-10:])) or '(none)'}"
        raise SubmissionError([FieldError("continue_step", f"must be the step of a snapshot {found}", step)])


def _link_snapshots(old: RunDir, new: RunDir, job_id: str, last_step: int | None) -> None:
    """By hard links: a committed snapshot is never written to again. The manifest is the new job's own."""
    before, after = SnapshotDir(old.snapshots), SnapshotDir(new.snapshots)
    for step in before.steps() if _is_plain(before.root) else []:
        manifest = before.manifest(step)
        sources = [] if manifest is None else [before.path(step) / name for name in manifest.files]
        if last_step is not None and step > last_step:
            continue
        if manifest is None or not all(_is_plain(source) for source in [before.path(step), *sources]):
            continue
        target = after.path(step)
        target.mkdir(mode=0o700, parents=True)
        for source in sources:
            _link(source, target / source.name)
        atomic_write(target / MANIFEST, replace(manifest, job_id=job_id).encoded())
    if new.snapshots.is_dir():
        fsync_directory(new.snapshots)
