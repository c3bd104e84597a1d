"""What snapshots a run has, by their manifests. Tensors are never opened here."""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rekindle.contract.run_dir.snapshots import MANIFEST, step_name
from rekindle.contract.safe_open import list_numbers, read_small, stat_beneath
from rekindle.contract.score import Score, best_step

_MANIFEST_FORMAT = 1


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """One committed snapshot. ``verified``: every file that the manifest lists is there, with the size given."""

    step: int
    epoch: int | None
    bytes: int
    verified: bool
    world_size: int
    created_at: float  # seconds since the epoch
    scored: Score | None
    best: bool = False  # of those that are there

    @property
    def score(self) -> float | None:
        return None if self.scored is None else self.scored.value


def read_snapshots(root: Path, snapshots: Path) -> list[SnapshotInfo]:
    """The snapshots in ``snapshots`` beneath ``root``, latest step first; unreadable ones are omitted."""
    directories = [snapshots / step_name(step) for step in reversed(list_numbers(snapshots))]
    found = [info for directory in directories if (info := _read_snapshot(root, directory)) is not None]
    best = best_step({info.step: info.scored for info in found if info.scored is not None})
    return [replace(info, best=info.step == best) for info in found]


def snapshot_files(root: Path, snapshots: Path, step: int) -> list[Path] | None:
    """The files of the committed snapshot of ``step``, its manifest last; None where there is none."""
    directory = snapshots / step_name(step)
    data = read_small(root, directory / MANIFEST)
    try:
        names = [str(name) for name in json.loads(data or b"")["files"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return [directory / name for name in [*names, MANIFEST] if name not in (".", "..") and "/" not in name]


def _read_snapshot(root: Path, directory: Path) -> SnapshotInfo | None:
    data = read_small(root, directory / MANIFEST)
    try:
        manifest: dict[str, Any] = json.loads(data or b"")
        files = {str(name): int(entry["bytes"]) for name, entry in manifest["files"].items()}
        epoch = manifest.get("epoch")
        return SnapshotInfo(
            step=int(manifest["step"]),
            epoch=None if epoch is None else int(epoch),
            bytes=sum(files.values()),
            verified=manifest["format"] == _MANIFEST_FORMAT
            and all(_has_size(root, directory, name, size) for name, size in files.items()),
            world_size=int(manifest["world_size"]),
            created_at=float(manifest["created_at"]),
            scored=_score(manifest.get("score")),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _score(value: Any) -> Score | None:
    if not isinstance(value, dict):
        return None
    score = Score(str(value["by"]), float(value["value"]))
    return score if math.isfinite(score.value) else None


def _has_size(root: Path, directory: Path, name: str, size: int) -> bool:
    found = None if name in (".", "..") or "/" in name else stat_beneath(root, directory / name)
    return found is not None and found.st_size == size
