"""The script's own checkpoints: which there are, which the attempt wrote, loaded or tore, learned while it runs.

Ranks record where they write (``rank/file_tracking.py``); here these directories are listed for files of the same name
patterns, and, since not everything is recorded, the working directory, the snapshot directory and the paths of
``--watch`` as well. What a file is shows its content (``checkpoint_format``). In the snapshot directory and in watched
paths, which are for nothing else, a file of any other format counts, too.

All of it is bounded: in the files that are listed, in the checkpoints that are kept, and in the time of one call.
"""

import os
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from rekindle.contract.files import write_json
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.script_files import (
    MAX_CHECKPOINTS,
    Checkpoint,
    Observations,
    is_unchanged,
    name_pattern,
    position_in_name,
    previous_path,
    shown_path,
)
from rekindle.contract.safe_open import open_regular
from rekindle.keeper.observers.checkpoint_files import (
    CHECKPOINT_DIRECTORY,
    MAX_FILES_IN_CHECKPOINT,
    METADATA,
    SHARD,
    TORN,
    Candidate,
    CheckpointSources,
    Load,
    Version,
    is_record,
    path_pattern,
    recognize,
    shards_complete,
    size_and_time,
    storage_sizes,
    walk_files,
)

INTERVAL = 2.0  # seconds
MAX_SECONDS = 0.2  # per call: a keeper that lists does not notice that a rank ends
LAST_MAX_SECONDS = 3.0  # when the ranks are gone
_REST_FACTOR = 20  # times as long as a call has taken passes before the next one
_MAX_RECOGNIZED = 20_000  # files whose format is remembered
_MAX_KNOWN_BEFORE = 500  # files examined for what was there before the first attempt

_WEIGHTS = (".bin", ".ckpt", ".pt", ".pth", ".safetensors", ".tar")
_KINDS = ("sharded", "torch", "safetensors", "file")  # of a directory with several the first
_RECENT = 120.0  # seconds before the end in which a directory may have been in the making
_MAX_TORN_FILES = 1_000  # of one torn checkpoint
_CLOCK_TOLERANCE = 1.0  # seconds by which a file system's clock may differ


class CheckpointTracker:
    """Follows the checkpoints of one attempt; make it before the ranks start. ``observed`` is what is stored."""

    def __init__(self, run_dir: RunDir, attempt: int, watch: Sequence[str] = (), *, lost: bool = False) -> None:
        """``watch``: paths of files or directories, absolute or relative to the working directory.

        ``lost``: the attempt has ended and its keeper with it: call ``finish`` next.
        """
        self._run_dir, self._attempt = run_dir, attempt
        stored = read_record(run_dir.observed, Observations)
        self.observed = Observations() if stored is None else stored
        self._sources = CheckpointSources(run_dir, attempt, watch, self.observed.temporary)
        self._roots = tuple(f"{root}/" for root in self._sources.roots)
        self._formats: dict[str, tuple[Version, str, bool]] = {}  # kind "" for no checkpoint
        self._first_save_at = float("inf")  # seconds since the epoch
        self._next_scan = 0.0  # seconds of CLOCK_MONOTONIC
        self.resumed_from: str | None = None
        self._drop_deleted()
        self.observed.checkpoints = [_as_restored(each) for each in self.observed.checkpoints]
        for checkpoint in self.observed.checkpoints:
            self._sources.add_known(checkpoint)
        deadline = time.monotonic() + LAST_MAX_SECONDS
        self._before = {} if lost else {each.path: each.version for each in self._sources.candidates(deadline)}
        self._listed_all = not lost and time.monotonic() < deadline
        if stored is None and not lost:
            self._add_known_before()
        self._known = {each.path: (each.attempt, each.written_at) for each in self.observed.checkpoints}
        self.observed.attempt, self.observed.ended = attempt, False
        self.set_estimates(None, None, None, None)
        self.observed.saves_without_loading = False
        self._stored: dict[str, object] = {}
        self._store(durable=False)

    def set_estimates(
        self, step: int | None, epoch: int | None, progress: float | None, seconds_left: float | None
    ) -> None:
        """Set estimates from printed lines; the next scan stores them."""
        self.observed.estimated_step, self.observed.estimated_epoch = step, epoch
        self.observed.estimated_progress, self.observed.estimated_seconds_left = progress, seconds_left

    @property
    def resumed_from_path(self) -> str | None:
        return None if self.resumed_from is None else shown_path(self.resumed_from, self._run_dir.code)

    @property
    def saved(self) -> bool | None:
        """Whether this attempt has completed a checkpoint; None where that cannot be known.

        It is known where the script has ever written one that is recognised.
        """
        if self.observed.saved_by(self._attempt):
            return True
        return False if any(each.attempt for each in self.observed.checkpoints) else None

    @property
    def loaded(self) -> bool | None:
        """Whether the script has loaded a checkpoint of an earlier attempt; None where that cannot be known."""
        if self.resumed_from is not None:
            return True
        return None if self._sources.spawned or not self._sources.tracked_ranks else False

    def scan_if_due(self) -> None:
        now = time.monotonic()
        if now >= self._next_scan:
            self._scan(MAX_SECONDS)
            self._next_scan = time.monotonic() + max(INTERVAL, _REST_FACTOR * (time.monotonic() - now))

    def finish(self) -> None:
        """Finish once the ranks are gone: what is incomplete now stays so."""
        self._scan(LAST_MAX_SECONDS)
        self._mark_lacking()
        for checkpoint in self.observed.checkpoints:
            if checkpoint.complete and not checkpoint.files:
                with suppress(OSError):
                    Path(previous_path(checkpoint.path)).unlink()
        self.observed.ended = True
        self._store(durable=True)

    def _scan(self, seconds: float) -> None:
        loaded = self._sources.read_records()
        groups: dict[str, list[Candidate]] = {}
        for candidate in self._sources.candidates(time.monotonic() + seconds):
            if self._is_changed(candidate) and self._format(candidate)[0]:
                groups.setdefault(candidate.group or self._sources.group(candidate.path), []).append(candidate)
        for path, files in groups.items():
            if not self._sources.is_temporary(path):
                self._update(path, files)
        for record in loaded:
            self._note_loaded(record)
        found_own = any(attempt for attempt, _written in self._known.values())
        self.observed.saves_without_loading = found_own and self.saved is True and self.loaded is False
        self._drop_deleted()
        self._store(durable=False)

    def _drop_deleted(self) -> None:
        """Forget deleted checkpoints and all but the latest."""
        kept = [each for each in self.observed.checkpoints if os.path.lexists(each.path)]
        self.observed.checkpoints = sorted(kept, key=_age_order, reverse=True)[:MAX_CHECKPOINTS]

    def _store(self, *, durable: bool) -> None:
        """Store what is observed; what does not fit on a full disk is stored by the next call."""
        value = self.observed.to_json()
        if value != self._stored or durable:
            with suppress(OSError):
                write_json(self._run_dir.observed, value, durable=durable)
                self._stored = value

    def _note_loaded(self, load: Load) -> None:
        path = self._sources.group(load.record.path)
        known = self._known.get(path) or self._known.get(load.record.path)
        if known is None or self._has_saved_before(load):
            return  # a script may load its best model in the end
        path = path if path in self._known else load.record.path
        for checkpoint in self.observed.checkpoints:
            if checkpoint.path == path:
                checkpoint.loaded = self._attempt
        if self.resumed_from is None or known > self._known[self.resumed_from]:
            self.resumed_from = path

    def _has_saved_before(self, load: Load) -> bool:
        """Whether the rank had written a checkpoint of this attempt, by the order of its records.

        The clock decides for what other ranks and programs write: file systems have one that lags behind.
        """
        if load.record.at > self._first_save_at + _CLOCK_TOLERANCE:
            return True
        own = {path_pattern(each.path) for each in self.observed.checkpoints if each.attempt == self._attempt}
        return any(path_pattern(self._sources.group(path)) in own for path in load.written_before())

    def _is_changed(self, candidate: Candidate) -> bool:
        """True for a change since this attempt began. In a directory that was not listed then, the clock decides."""
        if (before := self._before.get(candidate.path)) is not None:
            return before != candidate.version
        if self._listed_all and candidate.path.startswith(self._roots):
            return True
        if candidate.path in self._sources.written:
            return True
        return candidate.version[1] >= (self._sources.started_at - _CLOCK_TOLERANCE) * 1e9

    def _format(self, candidate: Candidate) -> tuple[str, bool]:
        """Kind, empty for what is no checkpoint, and whether it is complete; remembered per version of the file."""
        path, version = candidate.path, candidate.version
        if (known := self._formats.get(path)) is not None and known[0] == version:
            return known[1], known[2]
        found = recognize(Path(path))
        kind, complete = ("", True) if found is None else (found.kind, found.complete)
        if not kind and candidate.any_format and not is_record(path):
            kind = "file"
        if not kind and not version[0]:  # saved in place: the ranks ended before its first bytes were written
            before = "torch" if os.path.lexists(previous_path(path)) else ""
            kind = next((each.kind for each in self.observed.checkpoints if each.path == path), before)
            complete = not kind
        if len(self._formats) < _MAX_RECOGNIZED:
            self._formats[path] = version, kind, complete
        return kind, complete

    def _update(self, path: str, changed: Sequence[Candidate]) -> None:
        """Update the checkpoint at ``path``, of which this attempt has written the ``changed`` files."""
        formats = [self._format(candidate) for candidate in changed]
        written_at = max(candidate.version[1] for candidate in changed) / 1e9
        files = list(walk_files(Path(path), MAX_FILES_IN_CHECKPOINT))  # none where it is a file
        self._replace(
            Checkpoint(
                path=path,
                kind=min((kind for kind, _ in formats), key=_KINDS.index),
                bytes=sum(size_and_time(entry)[0] for entry in files) or changed[0].version[0],
                written_at=written_at,
                attempt=self._attempt,
                complete=all(complete for _, complete in formats) and shards_complete(files),
                files=[entry.path[len(path) + 1 :] for entry in files],
                **self._position(path),
            )
        )
        self._first_save_at = min(self._first_save_at, written_at)

    def _position(self, path: str) -> dict[str, Any]:
        """Step and epoch by the name, else by what was printed last."""
        named, seen = position_in_name(path), self.observed
        return named or {"step": seen.estimated_step, "epoch": seen.estimated_epoch, "estimated": True}

    def _replace(self, checkpoint: Checkpoint) -> None:
        others = []
        for each in self.observed.checkpoints:
            if each.path == checkpoint.path:
                checkpoint.loaded = each.loaded
                if (each.attempt, each.written_at) == (checkpoint.attempt, checkpoint.written_at):
                    checkpoint.step, checkpoint.epoch, checkpoint.estimated = each.step, each.epoch, each.estimated
            else:
                others.append(each)
        self.observed.checkpoints = [*others, checkpoint]

    def _mark_lacking(self) -> None:
        """Mark a directory that was written last and lacks a file of the one before it: its attempt ended too early.

        Trainer's is an example: it writes ``trainer_state.json`` last and needs it first.
        """
        directories = [each for each in self.observed.checkpoints if each.files and each.complete]
        for latest in directories:
            family = [each for each in directories if path_pattern(each.path) == path_pattern(latest.path)]
            older = [each for each in family if each.age_order < latest.age_order]
            before = max(older, key=_age_order, default=None)
            is_recent = latest.attempt == self._attempt and latest.written_at > time.time() - _RECENT
            if before is not None and is_recent and latest is max(family, key=_age_order):
                lacking = set(map(name_pattern, before.files)) - set(map(name_pattern, latest.files))
                latest.lacks = min(lacking, default=None)
                latest.complete = not lacking

    def _add_known_before(self) -> None:
        """Add checkpoints that came with the code or the command: the script may load them."""
        names = (path for path in self._before if path.endswith(_WEIGHTS) or path.endswith(SHARD))
        for path in islice(names, _MAX_KNOWN_BEFORE):
            version = self._before[path]
            kind, _complete = self._format(Candidate(path, version))
            if kind and self._sources.group(path) not in {each.path for each in self.observed.checkpoints}:
                self._update(self._sources.group(path), [Candidate(path, version)])
                self.observed.checkpoints[-1].attempt = 0
        self._first_save_at = float("inf")


def _age_order(checkpoint: Checkpoint) -> tuple[float, list[int]]:
    return checkpoint.age_order


def _as_restored(checkpoint: Checkpoint) -> Checkpoint:
    """Mark an incomplete one complete where ``_put_back`` has put back the one before, whose step is not known."""
    path = Path(checkpoint.path)
    if checkpoint.complete or checkpoint.files or (found := recognize(path)) is None or not found.complete:
        return checkpoint
    size, modified = size_and_time(path)
    restored = replace(checkpoint, complete=True, bytes=size, written_at=modified / 1e9)
    return replace(restored, step=None, epoch=None, estimated=False)


def move_torn(run_dir: RunDir, watch: Sequence[str] = ()) -> list[tuple[Checkpoint, str, bool]]:
    """Rename what the last attempt left incomplete, so that the script finds the checkpoint before it.

    Returns the checkpoints, their new paths, and whether one that was being overwritten is back in its place.

    Call it while nothing of the job runs. Moved is what cannot be loaded by its format, and was written by the last
    attempt under a name that is not temporary. Where one of the same name was moved before, the next is moved only
    when the script has tried to load it: one that never completes a checkpoint must not fill the disk.
    """
    observed = read_record(run_dir.observed, Observations)
    if observed is None or not observed.ended:
        return []
    moved = []
    for checkpoint in observed.checkpoints:
        tried = checkpoint.loaded == observed.attempt
        has_previous = os.path.lexists(previous_path(checkpoint.path))
        left_now = checkpoint.attempt == observed.attempt and (has_previous or not _torn_names(checkpoint.path))
        protected = [str(run_dir.code), str(run_dir.root), *(str(run_dir.code / path) for path in watch)]
        if not checkpoint.complete and (tried or left_now) and _is_movable(checkpoint, protected):
            with suppress(OSError):
                target = _free_name(f"{checkpoint.path}{TORN}{checkpoint.attempt}")
                Path(checkpoint.path).rename(target)
                moved.append((checkpoint, target))
    known = (each.path.rpartition("/")[0] for each in observed.checkpoints)
    restored = _put_back({str(run_dir.code), str(run_dir.snapshots), *known})
    return [(checkpoint, target, checkpoint.path in restored) for checkpoint, target in moved]


def _put_back(directories: Iterable[str]) -> list[str]:
    """Put back checkpoints that were being overwritten when an attempt ended; their paths."""
    restored = []
    for directory in directories:
        with suppress(OSError):
            for entry in sorted(Path(directory).glob(previous_path("/*")[1:])):
                path = str(entry.with_name(entry.name.removeprefix(".").removesuffix(".previous")))
                if not os.path.lexists(path):
                    restored.append(str(entry.rename(path)))
    return restored


def move_newer_away(run_dir: RunDir, chosen: str, run: int) -> list[str] | None:
    """Let the script find no checkpoint newer than ``chosen``; the paths that were moved, None where it is gone.

    Newer ones in its directory, or elsewhere of the same name pattern, move into the run directory, or where they are
    outside of it, into a hidden directory next to them. A name without a number, such as ``last.pt``, becomes a copy
    of the chosen one where both are files of the same format, and nearly the same size or with tensors of the same
    sizes; a link to a moved one then leads to the chosen one. Call it while nothing of the job runs. Nothing is
    deleted, and repeating it is harmless. Raises OSError.
    """
    observed = read_record(run_dir.observed, Observations) or Observations()
    checkpoint = next((each for each in observed.checkpoints if each.path == chosen), None)
    if checkpoint is None or not is_unchanged(checkpoint):
        return None
    directory, moved = chosen.rpartition("/")[0], []
    for each in observed.checkpoints:
        is_beside = each.path.rpartition("/")[0] == directory or name_pattern(each.path) == name_pattern(chosen)
        if is_beside and each.age_order > checkpoint.age_order and not Path(each.path).is_symlink():
            is_inside = each.path.startswith(f"{run_dir.root}/")
            aside = run_dir.root / f"moved-away-{run}" if is_inside else Path(each.path).parent / f".moved-away-{run}"
            aside.mkdir(exist_ok=True)
            target = aside / Path(each.path).name
            with suppress(FileNotFoundError):  # where a keeper before has moved it, and was killed while it copied
                target = Path(each.path).rename(_free_name(str(target)))
                moved.append(each.path)
            if target.exists() and _is_alias(each, target, checkpoint):
                _copy_file(Path(chosen), Path(each.path))
    for entry in Path(directory).iterdir():
        if entry.is_symlink() and str(entry.parent / entry.readlink()) in moved:
            entry.unlink()
            entry.symlink_to(Path(chosen).name)
    return moved


def _is_alias(newer: Checkpoint, moved: Path, chosen: Checkpoint) -> bool:
    """Whether the name is that of the latest checkpoint, whichever it is, and had the content that ``chosen`` has.

    ``moved`` is where the newer one is now.
    """
    name = newer.path.rpartition("/")[2]
    if name_pattern(name) != name or newer.kind != chosen.kind or newer.files or chosen.files:
        return False
    if abs(newer.bytes - chosen.bytes) <= chosen.bytes / 100:
        return True
    sizes = storage_sizes(moved)
    return bool(sizes) and sizes == storage_sizes(Path(chosen.path))


def _copy_file(source: Path, target: Path) -> None:
    part = target.parent / f".{target.name}.part"
    with open_regular(source) as file, part.open("wb") as copy:
        shutil.copyfileobj(file, copy)
        copy.flush()
        os.fsync(copy.fileno())
    part.replace(target)


def _torn_names(path: str) -> list[str]:
    directory, _, name = path.rpartition("/")
    try:
        return [each.name for each in Path(directory).iterdir() if each.name.startswith(name + TORN)]
    except OSError:
        return []


def _is_movable(checkpoint: Checkpoint, protected: Sequence[str]) -> bool:
    """True for an incomplete or empty regular file, or a directory that holds nothing but an incomplete checkpoint."""
    path = Path(checkpoint.path)
    if any(f"{each}/".startswith(f"{path}/") for each in protected) or path.is_symlink():
        return False
    if path.is_dir():
        files = list(walk_files(path, _MAX_TORN_FILES))
        if checkpoint.lacks is not None:
            return checkpoint.lacks not in {name_pattern(entry.path.removeprefix(f"{path}/")) for entry in files}
        only_shards = all(entry.name.endswith(SHARD) or entry.name.startswith(METADATA) for entry in files)
        formats = [found for entry in files if (found := recognize(Path(entry.path))) is not None]
        complete = all(found.complete for found in formats) and shards_complete(files)
        return not complete and (only_shards or bool(CHECKPOINT_DIRECTORY.fullmatch(path.name)))
    found = recognize(path)
    return not size_and_time(path)[0] if found is None else not found.complete


def _free_name(name: str) -> str:
    taken = [name, *(f"{name}-{number}" for number in range(2, 1000))]
    return next(each for each in taken if not os.path.lexists(each))
