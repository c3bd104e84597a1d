"""Where a script's checkpoints may be: what its ranks recorded, listed again and again, and what is listed anyway."""

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rekindle.contract.files import read_lines
from rekindle.contract.run_dir.json_records import structure
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.script_files import Checkpoint, FileRecord, FileUse, name_pattern
from rekindle.contract.run_dir.snapshots import step_of
from rekindle.keeper.observers.checkpoint_format import CHECKPOINT_DIRECTORY, METADATA, SHARD, TORN
from rekindle.keeper.observers.files import walk_files

MAX_FILES_IN_CHECKPOINT = 200
_MAX_LISTED = 5_000  # names of a directory that a rank wrote to
_MAX_DIRECTORIES = 1_000
_MAX_TEMPORARY = 100  # patterns
_MAX_NESTING = 3  # directories of one checkpoint: global_step10/mp_rank_00

_RECORDS = (".csv", ".json", ".jsonl", ".lock", ".log", ".md", ".out", ".txt", ".yaml", ".yml")
"""Suffixes of files that describe a training and hold no state of it; TensorBoard's are marked inside the name."""

_TEMPORARY = re.compile(r"^[.~]|^tmp|[._-](tmp|temp|part|partial|incomplete)\b|~$", re.I)

Version = tuple[int, int]  # size, modification time in ns


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be, or belong to, a checkpoint; ``any_format``: its directory is for nothing else."""

    path: str
    version: Version
    group: str | None = None  # the directory that is the checkpoint, where that is known
    any_format: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """A known checkpoint that a rank has opened for reading, after its first ``written`` entries of ``paths``."""

    record: FileRecord
    paths: list[str]  # that the rank has written, in order
    written: int

    def written_before(self) -> Iterator[str]:
        return islice(self.paths, self.written)


class CheckpointSources:
    """Of one attempt. ``temporary`` are patterns of names that the script renames when they are whole."""

    def __init__(self, run_dir: RunDir, attempt: int, watch: Sequence[str], temporary: list[str]) -> None:
        self._run_dir, self._attempt, self.temporary = run_dir, attempt, temporary
        self._watched = [run_dir.code / path for path in watch]
        self.roots = {str(run_dir.code), str(run_dir.snapshots), *map(str, self._watched)}
        self.started_at = time.time()  # seconds since the epoch
        self.written: set[str] = set()  # paths, the first one of each pattern
        self.tracked_ranks: set[str] = set()
        self.spawned = False  # the ranks have started programs, whose files are not recorded
        self._offsets: dict[Path, int] = {}
        self._paths: dict[int, list[str]] = {}  # that a rank has written, by rank
        self._patterns: dict[str, set[str]] = {}  # by directory
        self._directories: set[str] = set()  # patterns of those that are one checkpoint each

    def add_known(self, checkpoint: Checkpoint) -> None:
        """Look for ``checkpoint`` and others of its kind."""
        self._add_pattern(checkpoint.path)
        if checkpoint.files:
            self._directories.add(path_pattern(checkpoint.path))

    def read_records(self) -> list[Load]:
        """Learn where the ranks write; returns which checkpoints they have loaded since the last call."""
        attempt_dir, loaded = self._run_dir.attempt(self._attempt), []
        for rank in attempt_dir.rank_numbers():
            path = attempt_dir.rank(rank).files
            paths = self._paths.setdefault(rank, [])
            for offset, line in islice(read_lines(path, self._offsets.get(path, 0)), _MAX_LISTED):
                self._offsets[path] = offset
                with suppress(ValueError):
                    record = structure(FileRecord, line)
                    if record.use is FileUse.LOADED:
                        loaded.append(Load(record, paths, len(paths)))
                    elif record.use in (FileUse.WRITTEN, FileUse.RENAMED):
                        paths.append(record.path)
                    self._learn(record)
        return loaded

    def _learn(self, record: FileRecord) -> None:
        match record.use:
            case FileUse.TRACKED:
                self.tracked_ranks.add(record.path)
                self.started_at = min(self.started_at, record.at)
            case FileUse.SPAWNED:
                self.spawned = True
            case FileUse.WRITTEN if Path(record.path).is_dir():
                pass  # a temporary file in it, which the event does not name
            case FileUse.WRITTEN | FileUse.RENAMED if not self._is_own_snapshot(record.path):
                self.written.add(record.path)
                self._add_pattern(record.path)
                if record.use is FileUse.RENAMED and record.path not in self.roots:
                    self._directories.add(path_pattern(record.path))
                if record.source is not None and len(self.temporary) < _MAX_TEMPORARY:
                    pattern = path_pattern(record.source)
                    if pattern not in self.temporary and path_pattern(record.path) != pattern:
                        self.temporary.append(pattern)

    def _add_pattern(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        if directory in self._patterns or len(self._patterns) < _MAX_DIRECTORIES:
            self._patterns.setdefault(directory, set()).add(name_pattern(name))

    def candidates(self, deadline: float) -> Iterator[Candidate]:
        """The files where checkpoints are expected, until ``deadline`` (seconds of CLOCK_MONOTONIC)."""
        seen: set[str] = set()
        for candidate in self._all_candidates():
            if candidate.path not in seen:
                seen.add(candidate.path)
                if not self.is_temporary(candidate.path) and not self._is_own_snapshot(candidate.path):
                    yield candidate
            if time.monotonic() > deadline:
                return

    def _all_candidates(self) -> Iterator[Candidate]:
        for root in (*self._watched, self._run_dir.snapshots):
            if root.is_file() and not root.is_symlink():
                yield Candidate(str(root), size_and_time(root), any_format=True)
            for entry in walk_files(root):
                yield Candidate(entry.path, size_and_time(entry), any_format=True)
        for directory, patterns in list(self._patterns.items()):
            yield from self._matching(directory, patterns)
        for entry in walk_files(self._run_dir.code):
            yield Candidate(entry.path, size_and_time(entry))

    def _matching(self, directory: str, patterns: set[str]) -> Iterator[Candidate]:
        """What has the name of a written file, or is in a directory that has the name of a renamed one."""
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in islice(entries, _MAX_LISTED):
                if name_pattern(entry.name) not in patterns:
                    continue
                if entry.is_file(follow_symlinks=False):
                    yield Candidate(entry.path, size_and_time(entry))
                elif entry.is_dir(follow_symlinks=False) and path_pattern(entry.path) in self._directories:
                    for file in walk_files(Path(entry.path), MAX_FILES_IN_CHECKPOINT):
                        yield Candidate(file.path, size_and_time(file), group=entry.path)

    def group(self, path: str) -> str:
        """The directory that is one checkpoint and has ``path`` in it, else ``path``."""
        directory = path.rpartition("/")[0]
        sharded = path.endswith((SHARD, f"/{METADATA}")) and directory not in self.roots
        group = directory if sharded else path
        for _ in range(_MAX_NESTING):
            if not directory or directory in self.roots:
                break
            if CHECKPOINT_DIRECTORY.fullmatch(directory.rpartition("/")[2]):
                group = directory
            directory = directory.rpartition("/")[0]
        return group

    def is_temporary(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        return bool(_TEMPORARY.search(name)) or TORN in path or path_pattern(path) in self.temporary

    def _is_own_snapshot(self, path: str) -> bool:
        """True for what ``rekindle.Snapshots`` writes: it is listed as snapshots."""
        prefix = f"{self._run_dir.snapshots}/"
        if not path.startswith(prefix):
            return False
        first = path[len(prefix) :].partition("/")[0]
        return step_of(first) is not None or first.startswith((".tmp-", ".old-", ".trash-", "quarantine-"))


def size_and_time(entry: os.DirEntry[str] | Path) -> Version:
    try:
        stat = entry.stat(follow_symlinks=False)
    except OSError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns


def path_pattern(path: str) -> str:
    directory, _, name = path.rpartition("/")
    return f"{directory}/{name_pattern(name)}"


def is_record(path: str) -> bool:
    return path.endswith(_RECORDS) or ".tfevents." in path.rpartition("/")[2]
