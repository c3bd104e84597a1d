"""Files by which a script that reports no steps shows that it has got on: what it saves to go on from."""

import os

from rekindle.contract.layout import RunDir
from rekindle.keeper.folder_walk import files_below

WEIGHTS = (".bin", ".ckpt", ".distcp", ".pt", ".pth", ".safetensors")
"""How files with weights end, by torch, Lightning, Hugging Face and torch.distributed.checkpoint."""

_Listing = dict[str, tuple[int, int]]  # path -> size, modification time in ns: changed means saved


class SavedFiles:
    """As they are when an attempt begins."""

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._snapshots, self._weights = _in_snapshots(run_dir), _in_working_folder(run_dir)

    def changed(self, *, by_itself: bool) -> bool:
        """Whether something has been saved since.

        Anything in the snapshot directory counts, which is for nothing else; in the working folder only weights do,
        and not where the script failed by an exception of its own (``by_itself``): one that saves first and then runs
        into a mistake would be tried for ever.
        """
        if _in_snapshots(self._run_dir) != self._snapshots:
            return True
        return not by_itself and _in_working_folder(self._run_dir) != self._weights


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
