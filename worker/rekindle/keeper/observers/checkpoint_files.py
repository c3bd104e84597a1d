"""A script's checkpoints in the file system: where they may be, and which file is one.

A file is a checkpoint, and a complete one, by its first and last bytes, never by its name. Nothing is unpickled and no
tensor is read. What is not recognized (a pickle, an archive of numpy) is no checkpoint unless it is in a directory that
is for nothing else.
"""

import json
import os
import re
import struct
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO
from zipfile import BadZipFile, ZipFile

from rekindle.contract.files import read_lines
from rekindle.contract.run_dir.json_records import structure
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.script_files import ZIP, Checkpoint, FileRecord, FileUse, ends_zip, name_pattern
from rekindle.contract.run_dir.snapshot_dir import NO_SNAPSHOTS, step_of
from rekindle.contract.safe_open import open_regular

METADATA = ".metadata"
"""What torch.distributed.checkpoint renames into its directory when all shards are written."""

SHARD = ".distcp"
TORN = ".torn-"
"""In the name of a checkpoint that was moved away because it cannot be loaded."""

CHECKPOINT_DIRECTORY = re.compile(
    r"(?:.*[^a-z])?(?:checkpoint|ckpt|epoch|step|global_?step|iter|iteration|snapshot)[-_=]?\d+(?:[^a-z].*)?", re.I
)
"""A directory with a number that is one checkpoint: Trainer's, Accelerate's, DeepSpeed's, Megatron's."""

_TORCH_ENTRY = (b"/data.pkl", b"/version", b"/byteorder", b"/.format_version", b"/constants.pkl")
_TORCH_LEGACY = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"  # torch.serialization.MAGIC_NUMBER, pickled
_MAX_HEADER = 100 << 20  # bytes, the limit of safetensors itself
_MAX_PARSED = 4 << 20  # bytes of a header that the keeper parses


@dataclass(frozen=True, slots=True)
class Format:
    """Format of a checkpoint. ``complete``: the file ends as its format demands, as far as that shows."""

    kind: str
    complete: bool


def recognize(path: Path) -> Format | None:
    """Recognize the format of a file; None for what is no checkpoint, and for what cannot be read."""
    if path.name.endswith(SHARD):
        return Format("sharded", complete=True)  # its directory shows whether it is, by METADATA
    try:
        with open_regular(path) as file:
            return _recognize(file, os.fstat(file.fileno()).st_size)
    except OSError:
        return None


def shards_complete(files: Sequence[os.DirEntry[str]]) -> bool:
    """True where no shard is missing: torch.distributed.checkpoint renames its metadata into place after the last."""
    shards = [_modified(entry) for entry in files if entry.name.endswith(SHARD)]
    metadata = [_modified(entry) for entry in files if entry.name == METADATA]
    return not shards or (bool(metadata) and max(metadata) >= max(shards))


def _modified(entry: os.DirEntry[str]) -> int:
    """Time of modification in ns; 0 for what is gone."""
    try:
        return entry.stat(follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0


def _recognize(file: BinaryIO, size: int) -> Format | None:
    head = file.read(256)
    if head.startswith(ZIP):
        name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
        return Format("torch", ends_zip(file, size)) if name.endswith(_TORCH_ENTRY) else None
    if head.startswith(_TORCH_LEGACY):
        return Format("torch", complete=True)
    if len(head) > 9 and head[8:9] == b"{" and 2 <= (length := struct.unpack("<Q", head[:8])[0]) <= _MAX_HEADER:
        return _safetensors(file, size, length)
    return None


def storage_sizes(path: Path) -> list[int]:
    """Sizes in bytes of the tensors in an archive of torch, in ascending order; empty where it cannot be read.

    The size of the file depends on its name, which torch repeats with each tensor; these do not.
    """
    unreadable = (OSError, ValueError, EOFError, NotImplementedError, struct.error, BadZipFile)
    with suppress(*unreadable), open_regular(path) as file, ZipFile(file) as archive:
        return sorted(each.file_size for each in archive.infolist() if "/data/" in each.filename)
    return []


def _safetensors(file: BinaryIO, size: int, length: int) -> Format | None:
    if size < 8 + length:
        return Format("safetensors", complete=False)
    if length > _MAX_PARSED:
        return Format("safetensors", complete=True)
    file.seek(8)
    try:
        header = json.loads(file.read(length))
        tensors = [each for name, each in header.items() if name != "__metadata__"]
        end = max((int(each["data_offsets"][1]) for each in tensors), default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return None
    return Format("safetensors", complete=size >= 8 + length + end)


MAX_ENTRIES = 20_000
MAX_DEPTH = 10


def walk_files(root: Path, max_entries: int = MAX_ENTRIES) -> Iterator[os.DirEntry[str]]:
    """List the regular files below ``root``, those of upper directories first, until ``max_entries`` names were read.

    No link is followed, nothing hidden is entered; what cannot be read, or is deeper than ``MAX_DEPTH``, is skipped.
    """
    queue = deque([(str(root), 0)])
    left = max_entries
    while queue:
        directory, depth = queue.popleft()
        with suppress(OSError), os.scandir(directory) as entries:
            found = list(islice(entries, left))
            left -= len(found)
            for entry in found:
                if entry.is_file(follow_symlinks=False):
                    yield entry
                elif entry.is_dir(follow_symlinks=False) and depth < MAX_DEPTH and not entry.name.startswith("."):
                    queue.append((entry.path, depth + 1))


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
    """Where one attempt's checkpoints are. ``temporary``: patterns of names that the script renames when whole."""

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
        """Expect ``checkpoint`` and others of its kind."""
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
        """Candidates with the name of a written file, or in a directory with the name of a renamed one."""
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
        return step_of(first) is not None or first.startswith(NO_SNAPSHOTS)


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
