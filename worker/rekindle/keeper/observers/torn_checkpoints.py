"""Checkpoints that the script was writing when its attempt ended: moved away, so that it resumes from the one before.

They are kept, never deleted: ``ckpt.pt`` becomes ``ckpt.pt.torn-2`` where attempt 2 was writing it.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.script_files import Checkpoint, Observations, name_pattern
from rekindle.keeper.observers.checkpoint_format import (
    CHECKPOINT_DIRECTORY,
    METADATA,
    SHARD,
    TORN,
    recognize,
    shards_complete,
)  # fmt: skip
from rekindle.keeper.observers.files import walk_files

_MAX_FILES = 1_000  # of one checkpoint


def move_torn(run_dir: RunDir, watch: Sequence[str] = ()) -> list[tuple[Checkpoint, str]]:
    """Rename what the last attempt left incomplete, so that the script finds the checkpoint before it; with new paths.

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
        left_now = checkpoint.attempt == observed.attempt and not _torn_names(checkpoint.path)
        protected = [str(run_dir.code), str(run_dir.root), *(str(run_dir.code / path) for path in watch)]
        if not checkpoint.complete and (tried or left_now) and _is_movable(checkpoint, protected):
            with suppress(OSError):
                target = _free_name(f"{checkpoint.path}{TORN}{checkpoint.attempt}")
                Path(checkpoint.path).rename(target)
                moved.append((checkpoint, target))
    return moved


def _torn_names(path: str) -> list[str]:
    directory, _, name = path.rpartition("/")
    try:
        return [each.name for each in Path(directory).iterdir() if each.name.startswith(name + TORN)]
    except OSError:
        return []


def _is_movable(checkpoint: Checkpoint, protected: Sequence[str]) -> bool:
    """A regular file, or a directory that holds nothing but the checkpoint; it is incomplete still."""
    path = Path(checkpoint.path)
    if any(f"{each}/".startswith(f"{path}/") for each in protected) or path.is_symlink():
        return False
    if path.is_dir():
        files = list(walk_files(path, _MAX_FILES))
        if checkpoint.lacks is not None:
            return checkpoint.lacks not in {name_pattern(entry.path.removeprefix(f"{path}/")) for entry in files}
        only_shards = all(entry.name.endswith(SHARD) or entry.name.startswith(METADATA) for entry in files)
        formats = [found for entry in files if (found := recognize(Path(entry.path))) is not None]
        complete = all(found.complete for found in formats) and shards_complete(files)
        return not complete and (only_shards or bool(CHECKPOINT_DIRECTORY.fullmatch(path.name)))
    found = recognize(path)
    return found is not None and not found.complete


def _free_name(name: str) -> str:
    taken = [name, *(f"{name}-{number}" for number in range(2, 1000))]
    return next(each for each in taken if not os.path.lexists(each))
