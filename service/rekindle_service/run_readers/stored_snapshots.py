"""What snapshots a run has, by their manifests. Tensors are never opened here."""

from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.field_texts import Described
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.script_files import Observations
from rekindle.contract.run_dir.snapshot_dir import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    BadSnapshotError,
    Manifest,
    SnapshotDir,
    best_step,
)
from rekindle.contract.safe_open import list_numbers, read_small, stat_beneath

_MAX_SNAPSHOTS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInfo(Described):
    """One committed snapshot."""

    step: int
    """Optimizer step after which it was taken."""
    epoch: int | None
    """Number of finished epochs; null where the script does not count them."""
    bytes: int
    """Size of all its files in bytes."""
    verified: bool
    """Whether every file of its manifest exists with the right size."""
    world_size: int
    """Number of ranks that wrote it."""
    created_at: float
    """Seconds since the epoch."""
    score: float | None
    """Value of the metric `snapshot.monitor` of the job at this step; null where there is none."""
    best: bool
    """Whether its score is the best of all snapshots."""


def read_snapshots(root: Path, snapshots: Path) -> list[SnapshotInfo]:
    """The snapshots in ``snapshots`` beneath ``root``, latest step first; without those that have no valid manifest.

    Only the 2,000 latest: a job keeps at most 1,000.
    """
    steps = list_numbers(snapshots)[-_MAX_SNAPSHOTS:]
    directories = {step: SnapshotDir(snapshots).path(step) for step in reversed(steps)}
    found = {step: _manifest(root, directory) for step, directory in directories.items()}
    manifests = {step: manifest for step, manifest in found.items() if manifest is not None and manifest.step == step}
    best = best_step({step: manifest.score for step, manifest in manifests.items() if manifest.score is not None})
    return [
        SnapshotInfo(
            step=step,
            epoch=manifest.epoch,
            bytes=manifest.size,
            verified=all(
                _has_size(root, directories[step] / name, file.bytes) for name, file in manifest.files.items()
            ),
            world_size=manifest.world_size,
            created_at=manifest.created_at,
            score=None if manifest.score is None else manifest.score.value,
            best=step == best,
        )
        for step, manifest in manifests.items()
    ]


def next_checkpoint_bytes(run_dir: RunDir) -> int:
    """The size of the latest snapshot, or of the latest checkpoint of the script's own in its run directory.

    0 where there is none yet: the size is not known before the first one.
    """
    snapshots = read_snapshots(run_dir.root, run_dir.snapshots)
    observed = read_record(run_dir.observed, Observations, run_dir.root) or Observations()
    own = [each.bytes for each in observed.checkpoints if each.path.startswith(f"{run_dir.root}/")]
    return max([each.bytes for each in snapshots[:1]] + own[:1], default=0)


def snapshot_files(root: Path, snapshots: Path, step: int) -> list[Path] | None:
    """The files of the committed snapshot of ``step``, its manifest last; None where there is none."""
    directory = SnapshotDir(snapshots).path(step)
    manifest = _manifest(root, directory)
    return None if manifest is None else [directory / name for name in [*manifest.files, MANIFEST]]


def _manifest(root: Path, directory: Path) -> Manifest | None:
    try:
        return Manifest.parse(read_small(root, directory / MANIFEST, MAX_MANIFEST_BYTES) or b"")
    except BadSnapshotError:
        return None


def _has_size(root: Path, path: Path, size: int) -> bool:
    found = stat_beneath(root, path)
    return found is not None and found.st_size == size
