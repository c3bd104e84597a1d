"""What snapshots a run has, told from their manifests. Tensors are never opened here."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle_service.readers.log_reader import size_of
from rekindle_service.readers.regular_file import folder_names, open_regular, read_small

_MANIFEST_FORMAT = 1


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """One committed snapshot. ``verified``: every file that the manifest lists is there, with the size it tells."""

    step: int
    epoch: int | None
    bytes: int
    verified: bool
    world_size: int
    created_at: float  # seconds since the epoch


def read_snapshots(root: Path, snapshots: Path) -> list[SnapshotInfo]:
    """The snapshots in the folder ``snapshots`` beneath ``root``, newest step first; unreadable ones left out."""
    names = sorted((name for name in folder_names(snapshots) if name.isascii() and name.isdecimal()), reverse=True)
    found = (_read_snapshot(root, snapshots / name) for name in names)
    return [info for info in found if info is not None]


def _read_snapshot(root: Path, folder: Path) -> SnapshotInfo | None:
    data = read_small(root, folder / "manifest.json")
    try:
        manifest: dict[str, Any] = json.loads(data or b"")
        files = {str(name): int(entry["bytes"]) for name, entry in manifest["files"].items()}
        epoch = manifest.get("epoch")
        return SnapshotInfo(
            step=int(manifest["step"]),
            epoch=None if epoch is None else int(epoch),
            bytes=sum(files.values()),
            verified=manifest["format"] == _MANIFEST_FORMAT
            and all(_has_size(root, folder, name, size) for name, size in files.items()),
            world_size=int(manifest["world_size"]),
            created_at=float(manifest["created_at"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _has_size(root: Path, folder: Path, name: str, size: int) -> bool:
    if name in (".", "..") or "/" in name:
        return False
    file = open_regular(root, folder / name)
    if file is None:
        return False
    with file:
        return size_of(file) == size
