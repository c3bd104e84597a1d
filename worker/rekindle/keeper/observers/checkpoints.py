"""The script's own checkpoints: which there are, which the attempt wrote, loaded or tore, learned while it runs.

Ranks record where they write (``rank/file_tracking.py``); here these directories are listed for files of the same name
patterns, and, since not everything is recorded, the working directory, the snapshot directory and the paths of
``--watch`` as well. What a file is shows its content (``checkpoint_format``). In the snapshot directory and in watched
paths, which are for nothing else, a file of any other format counts, too.

All of it is bounded: in the files that are listed, in the checkpoints that are kept, and in the time of one call.
"""

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rekindle.contract.files import read_lines, write_json
from rekindle.contract.run_dir.json_records import read_record, structure
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.script_files import (
    Checkpoint,
    FileRecord,
    FileUse,
    Observations,
    name_pattern,
    shown_path,
)  # fmt: skip
from rekindle.contract.run_dir.snapshots import step_of
from rekindle.keeper.observers.checkpoint_format import (
    CHECKPOINT_DIRECTORY,
    METADATA,
    SHARD,
    TORN,
    recognize,
    shards_complete,
)  # fmt: skip
from rekindle.keeper.observers.files import walk_files

INTERVAL = 2.0  # seconds
MAX_SECONDS = 0.2  # per call: a keeper that lists does not notice that a rank ends
LAST_MAX_SECONDS = 3.0  # when the ranks are gone
MAX_CHECKPOINTS = 100  # that are kept, the latest ones
MAX_FILES_IN_CHECKPOINT = 200
_REST_FACTOR = 20  # times as long as a call has taken passes before the next one
_MAX_LISTED = 5_000  # names of a directory that a rank wrote to
_MAX_DIRECTORIES = 1_000
_MAX_RECOGNIZED = 20_000  # files whose format is remembered
_MAX_KNOWN_BEFORE = 500  # files examined for what was there before the first attempt

_RECORDS = (".csv", ".json", ".jsonl", ".lock", ".log", ".md", ".out", ".txt", ".yaml", ".yml")
"""Suffixes of files that describe a training and hold no state of it; TensorBoard's are marked inside the name."""

_WEIGHTS = (".bin", ".ckpt", ".pt", ".pth", ".safetensors", ".tar")
_TEMPORARY = re.compile(r"^[.~]|^tmp|[._-](tmp|temp|part|partial|incomplete|new)\b|~$", re.I)
_KINDS = ("sharded", "torch", "safetensors", "file")  # of a directory with several the first
_MAX_NESTING = 3  # directories of one checkpoint: global_step10/mp_rank_00
_RECENT = 120.0  # seconds before the end in which a directory may have been in the making
_CLOCK_TOLERANCE = 1.0  # seconds by which a file system's clock may differ

_Version = tuple[int, int]  # size, modification time in ns


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A file that may be, or belong to, a checkpoint; ``any_format``: its directory is for nothing else."""

    path: str
    version: _Version
    group: str | None = None  # the directory that is the checkpoint, where that is known
    any_format: bool = False


class CheckpointTracker:
    """One per attempt; make it before the ranks start. ``observed`` is what is stored, of earlier attempts too."""

    def __init__(self, run_dir: RunDir, attempt: int, watch: Sequence[str] = (), *, lost: bool = False) -> None:
        """``watch``: paths of files or directories, absolute or relative to the working directory.

        ``lost``: the attempt has ended and its keeper with it: call ``finish`` next.
        """
        self._run_dir, self._attempt = run_dir, attempt
        self._watched = [run_dir.code / path for path in watch]
        self._roots = {str(run_dir.code), str(run_dir.snapshots), *map(str, self._watched)}
        stored = read_record(run_dir.observed, Observations)
        self.observed = Observations() if stored is None else stored
        self._offsets: dict[Path, int] = {}
        self._patterns: dict[str, set[str]] = {}  # by directory
        self._directories: set[str] = set()  # patterns of those that are one checkpoint each
        self._written: set[str] = set()  # paths
        self._started_at = time.time()
        self._tracked_ranks: set[str] = set()
        self._maybe_saved = False  # something was written that may be a state of the training
        self._formats: dict[str, tuple[_Version, str, bool]] = {}  # kind "" for no checkpoint
        self._first_save_at = float("inf")  # seconds since the epoch
        self._next_scan = 0.0  # seconds of CLOCK_MONOTONIC
        self.resumed_from: str | None = None
        self._drop_deleted()
        for checkpoint in self.observed.checkpoints:
            self._add_pattern(checkpoint.path)
            if checkpoint.files:
                self._directories.add(_path_pattern(checkpoint.path))
        deadline = time.monotonic() + LAST_MAX_SECONDS
        self._before = {} if lost else {each.path: each.version for each in self._candidates(deadline)}
        self._lost = lost
        if stored is None and not lost:
            self._add_known_before()
        self._known = {each.path: (each.attempt, each.written_at) for each in self.observed.checkpoints}
        self.observed.attempt, self.observed.ended = attempt, False
        self.observed.estimated_step = self.observed.estimated_epoch = None
        self._stored: dict[str, object] = {}
        self._store(durable=False)

    def set_estimates(self, step: int | None, epoch: int | None) -> None:
        """From printed lines; stored by the next scan."""
        self.observed.estimated_step, self.observed.estimated_epoch = step, epoch

    @property
    def resumed_from_path(self) -> str | None:
        return None if self.resumed_from is None else shown_path(self.resumed_from, self._run_dir.code)

    @property
    def saved(self) -> bool | None:
        """Whether this attempt has completed a checkpoint; None where that cannot be known.

        It is known where the script has ever written one that is recognised, or where nothing else was written that
        may be one.
        """
        if self.observed.saved_by(self._attempt):
            return True
        if any(each.attempt for each in self.observed.checkpoints):
            return False
        return None if self._maybe_saved or not self._tracked_ranks else False

    def scan_if_due(self) -> None:
        now = time.monotonic()
        if now >= self._next_scan:
            self._scan(MAX_SECONDS)
            self._next_scan = time.monotonic() + max(INTERVAL, _REST_FACTOR * (time.monotonic() - now))

    def finish(self) -> None:
        """Once the ranks are gone: what is incomplete now stays so."""
        self._scan(LAST_MAX_SECONDS)
        self._mark_lacking()
        self.observed.ended = True
        self._store(durable=True)

    def _scan(self, seconds: float) -> None:
        loaded = self._read_records()
        groups: dict[str, list[_Candidate]] = {}
        for candidate in self._candidates(time.monotonic() + seconds):
            if self._is_changed(candidate) and self._format(candidate)[0]:
                groups.setdefault(candidate.group or self._group(candidate.path), []).append(candidate)
        for path, files in groups.items():
            self._update(path, files)
        for record in loaded:
            self._note_loaded(record)
        self._drop_deleted()
        self._store(durable=False)

    def _drop_deleted(self) -> None:
        """And all but the latest."""
        kept = [each for each in self.observed.checkpoints if os.path.lexists(each.path)]
        self.observed.checkpoints = sorted(kept, key=lambda each: -each.written_at)[:MAX_CHECKPOINTS]

    def _store(self, *, durable: bool) -> None:
        """What does not fit on a full disk is stored by the next call."""
        value = self.observed.to_json()
        if value != self._stored or durable:
            with suppress(OSError):
                write_json(self._run_dir.observed, value, durable=durable)
                self._stored = value

    # --- what the ranks recorded

    def _read_records(self) -> list[FileRecord]:
        """Learn where the ranks write; returns which checkpoints they have loaded since the last call."""
        attempt_dir, loaded = self._run_dir.attempt(self._attempt), []
        for rank in attempt_dir.rank_numbers():
            path = attempt_dir.rank(rank).files
            for offset, line in islice(read_lines(path, self._offsets.get(path, 0)), _MAX_LISTED):
                self._offsets[path] = offset
                with suppress(ValueError):
                    record = structure(FileRecord, line)
                    loaded += [record] if record.use is FileUse.LOADED else []
                    self._learn(record)
        return loaded

    def _learn(self, record: FileRecord) -> None:
        match record.use:
            case FileUse.TRACKED:
                self._tracked_ranks.add(record.path)
                self._started_at = min(self._started_at, record.at)
            case FileUse.SPAWNED:
                self._maybe_saved = True
            case FileUse.WRITTEN if Path(record.path).is_dir():
                pass  # a temporary file in it, which the event does not name
            case FileUse.WRITTEN | FileUse.RENAMED if not self._is_own_snapshot(record.path):
                self._maybe_saved = self._maybe_saved or not _is_record(record.path)
                self._written.add(record.path)
                self._add_pattern(record.path)
                if record.use is FileUse.RENAMED and record.path not in self._roots:
                    self._directories.add(_path_pattern(record.path))
                if record.source is not None and len(self.observed.temporary) < MAX_CHECKPOINTS:
                    pattern = _path_pattern(record.source)
                    if pattern not in self.observed.temporary and _path_pattern(record.path) != pattern:
                        self.observed.temporary.append(pattern)

    def _add_pattern(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        if directory in self._patterns or len(self._patterns) < _MAX_DIRECTORIES:
            self._patterns.setdefault(directory, set()).add(name_pattern(name))

    def _note_loaded(self, record: FileRecord) -> None:
        path = self._group(record.path)
        known = self._known.get(path) or self._known.get(record.path)
        if known is None or record.at > self._first_save_at:
            return  # its own: a script may load the best model in the end
        path = path if path in self._known else record.path
        for checkpoint in self.observed.checkpoints:
            if checkpoint.path == path:
                checkpoint.loaded = self._attempt
        if self.resumed_from is None or known > self._known[self.resumed_from]:
            self.resumed_from = path

    # --- what there is

    def _candidates(self, deadline: float) -> Iterator[_Candidate]:
        """The files where checkpoints are expected, until ``deadline`` (seconds of CLOCK_MONOTONIC)."""
        seen: set[str] = set()
        for candidate in self._all_candidates():
            if candidate.path not in seen:
                seen.add(candidate.path)
                if not self._is_temporary(candidate.path) and not self._is_own_snapshot(candidate.path):
                    yield candidate
            if time.monotonic() > deadline:
                return

    def _all_candidates(self) -> Iterator[_Candidate]:
        for root in (*self._watched, self._run_dir.snapshots):
            if root.is_file() and not root.is_symlink():
                yield _Candidate(str(root), _version(root), any_format=True)
            for entry in walk_files(root):
                yield _Candidate(entry.path, _version(entry), any_format=True)
        for directory, patterns in list(self._patterns.items()):
            yield from self._matching(directory, patterns)
        for entry in walk_files(self._run_dir.code):
            yield _Candidate(entry.path, _version(entry))

    def _matching(self, directory: str, patterns: set[str]) -> Iterator[_Candidate]:
        """What has the name of a written file, or is in a directory that has the name of a renamed one."""
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in islice(entries, _MAX_LISTED):
                if name_pattern(entry.name) not in patterns:
                    continue
                if entry.is_file(follow_symlinks=False):
                    yield _Candidate(entry.path, _version(entry))
                elif entry.is_dir(follow_symlinks=False) and _path_pattern(entry.path) in self._directories:
                    for file in walk_files(Path(entry.path), MAX_FILES_IN_CHECKPOINT):
                        yield _Candidate(file.path, _version(file), group=entry.path)

    def _is_changed(self, candidate: _Candidate) -> bool:
        """Since this attempt began. Of a directory that was not listed then, the clock decides."""
        if (before := self._before.get(candidate.path)) is not None:
            return before != candidate.version
        if not self._lost and candidate.path.startswith(tuple(f"{root}/" for root in self._roots)):
            return True
        if candidate.path in self._written:
            return True
        return candidate.version[1] >= (self._started_at - _CLOCK_TOLERANCE) * 1e9

    def _format(self, candidate: _Candidate) -> tuple[str, bool]:
        """Kind, empty for what is no checkpoint, and whether it is complete; remembered per version of the file."""
        path, version = candidate.path, candidate.version
        if (known := self._formats.get(path)) is not None and known[0] == version:
            return known[1], known[2]
        found = recognize(Path(path))
        kind, complete = ("", True) if found is None else (found.kind, found.complete)
        if not kind and candidate.any_format and not _is_record(path):
            kind = "file"
        if len(self._formats) < _MAX_RECOGNIZED:
            self._formats[path] = version, kind, complete
        return kind, complete

    def _group(self, path: str) -> str:
        """The directory that is one checkpoint and has ``path`` in it, else ``path``."""
        directory = path.rpartition("/")[0]
        group = directory if path.endswith((SHARD, f"/{METADATA}")) else path
        for _ in range(_MAX_NESTING):
            if not directory or directory in self._roots:
                break
            if CHECKPOINT_DIRECTORY.fullmatch(directory.rpartition("/")[2]):
                group = directory
            directory = directory.rpartition("/")[0]
        return group

    def _is_temporary(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        return bool(_TEMPORARY.search(name)) or TORN in path or _path_pattern(path) in self.observed.temporary

    def _is_own_snapshot(self, path: str) -> bool:
        """True for what ``rekindle.Snapshots`` writes: it is listed as snapshots."""
        prefix = f"{self._run_dir.snapshots}/"
        if not path.startswith(prefix):
            return False
        first = path[len(prefix) :].partition("/")[0]
        return step_of(first) is not None or first.startswith((".tmp-", ".old-", ".trash-", "quarantine-"))

    # --- checkpoints

    def _update(self, path: str, changed: Sequence[_Candidate]) -> None:
        """The checkpoint at ``path`` after this attempt has written the ``changed`` files of it."""
        formats = [self._format(candidate) for candidate in changed]
        written_at = max(candidate.version[1] for candidate in changed) / 1e9
        files = list(walk_files(Path(path), MAX_FILES_IN_CHECKPOINT))  # none where it is a file
        self._replace(
            Checkpoint(
                path=path,
                kind=min((kind for kind, _ in formats), key=_KINDS.index),
                bytes=sum(_version(entry)[0] for entry in files) or changed[0].version[0],
                written_at=written_at,
                attempt=self._attempt,
                complete=all(complete for _, complete in formats) and shards_complete(files),
                files=[entry.path[len(path) + 1 :] for entry in files],
            )
        )
        self._first_save_at = min(self._first_save_at, written_at)

    def _replace(self, checkpoint: Checkpoint) -> None:
        others = []
        for each in self.observed.checkpoints:
            if each.path == checkpoint.path:
                checkpoint.loaded = each.loaded
            else:
                others.append(each)
        self.observed.checkpoints = [*others, checkpoint]

    def _mark_lacking(self) -> None:
        """A directory that was written last and lacks a file of the one before it: its attempt ended too early.

        So it is with Trainer's, which writes ``trainer_state.json`` last and needs it first.
        """
        directories = [each for each in self.observed.checkpoints if each.files and each.complete]
        for latest in directories:
            family = [each for each in directories if _path_pattern(each.path) == _path_pattern(latest.path)]
            before = max(
                (each for each in family if each.written_at < latest.written_at), key=_written_at, default=None
            )
            is_recent = latest.attempt == self._attempt and latest.written_at > time.time() - _RECENT
            if before is not None and is_recent and latest is max(family, key=_written_at):
                lacking = set(map(name_pattern, before.files)) - set(map(name_pattern, latest.files))
                latest.lacks = min(lacking, default=None)
                latest.complete = not lacking

    def _add_known_before(self) -> None:
        """Checkpoints that came with the code or the command: the script may load them."""
        names = (path for path in self._before if path.endswith(_WEIGHTS) or path.endswith(SHARD))
        for path in islice(names, _MAX_KNOWN_BEFORE):
            version = self._before[path]
            kind, _complete = self._format(_Candidate(path, version))
            if kind and self._group(path) not in {each.path for each in self.observed.checkpoints}:
                self._update(self._group(path), [_Candidate(path, version)])
                self.observed.checkpoints[-1].attempt = 0
        self._first_save_at = float("inf")


def _version(entry: os.DirEntry[str] | Path) -> _Version:
    try:
        stat = entry.stat(follow_symlinks=False)
    except OSError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns


def _written_at(checkpoint: Checkpoint) -> float:
    return checkpoint.written_at


def _path_pattern(path: str) -> str:
    directory, _, name = path.rpartition("/")
    return f"{directory}/{name_pattern(name)}"


def _is_record(path: str) -> bool:
    return path.endswith(_RECORDS) or ".tfevents." in path.rpartition("/")[2]
