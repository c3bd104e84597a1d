"""Files by which a script that reports no steps shows that it has got on: what it saves to go on from."""

import os
from pathlib import Path

from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.folder_walk import files_below

WEIGHTS = (".bin", ".ckpt", ".distcp", ".pt", ".pth", ".safetensors")
"""How files with weights end, by torch, Lightning, Hugging Face and torch.distributed.checkpoint."""

RECORDS = (".csv", ".json", ".jsonl", ".log", ".txt", ".yaml", ".yml")
"""How files end that tell of a training; what TensorBoard reads has its word in the middle of the name."""

_Listing = dict[str, tuple[int, int]]  # path -> size, modification time in ns: changed means saved


class SavedFiles:
    """As they are when an attempt begins."""

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._snapshots, self._weights = _in_snapshots(run_dir), _in_working_folder(run_dir)

    def changed(self, *, by_itself: bool) -> bool:
        """Whether something has been saved since.

        Anything in the snapshot directory counts, which is for nothing else; in the working folder only weights do.
        Where the script failed by an exception of its own (``by_itself``), nothing in the working folder does, and no
        records in the snapshot directory: one that writes first and then runs into a mistake would be tried for ever.
        """
        now = _in_snapshots(self._run_dir)
        changed = [path for path in now.keys() | self._snapshots.keys() if now.get(path) != self._snapshots.get(path)]
        if by_itself:
            return any(not _is_record(path) for path in changed)
        return bool(changed) or _in_working_folder(self._run_dir) != self._weights


def _is_record(path: str) -> bool:
    return path.endswith(RECORDS) or ".tfevents." in Path(path).name


def _in_snapshots(run_dir: RunDir) -> _Listing:
    return {entry.path: _told(entry) for entry in files_below(run_dir.snapshots)}


def _in_working_folder(run_dir: RunDir) -> _Listing:
    return {entry.path: _told(entry) for entry in files_below(run_dir.code) if entry.name.endswith(WEIGHTS)}


def _told(entry: os.DirEntry[str]) -> tuple[int, int]:
    try:
        told = entry.stat(follow_symlinks=False)
    except OSError:
        return 0, 0
    return told.st_size, told.st_mtime_ns
