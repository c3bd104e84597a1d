"""A committed snapshot as the ranks leave it, with anything in its files: for what reads manifests and no tensor."""

import hashlib
from pathlib import Path

from rekindle.contract.run_dir.snapshot_dir import (
    MANIFEST,
    MODEL,
    Manifest,
    SnapshotDir,
    SnapshotFile,
    SnapshotScore,
    rank_file,
)


def write_snapshot(
    snapshots: Path,
    step: int,
    *,
    epoch: int | None = None,
    world_size: int = 1,
    job_id: str | None = None,
    created_at: float = 1.0,
    score: SnapshotScore | None = None,
    model: bytes = b"weights",
) -> Path:
    """Its directory; ``snapshots`` is created if need be."""
    directory = SnapshotDir(snapshots).path(step)
    directory.mkdir(parents=True)
    contents = {MODEL: model, **{rank_file(rank): b"rng" for rank in range(world_size)}}
    for name, data in contents.items():
        (directory / name).write_bytes(data)
    files = {name: SnapshotFile(len(data), hashlib.sha256(data).hexdigest()) for name, data in contents.items()}
    manifest = Manifest(job_id, step, epoch, world_size, created_at, "1-ab", "2", files, score)
    (directory / MANIFEST).write_bytes(manifest.encoded())
    return directory
