"""Completing a snapshot by its manifest, and verifying one: every byte is read before it is used."""

import hashlib
from pathlib import Path

from rekindle.contract.files import atomic_write
from rekindle.contract.run_dir.snapshots import MANIFEST, BadSnapshotError, FileRecord, Manifest

_CHUNK = 1 << 20  # bytes


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Complete ``folder``, whose files must be on disk already."""
    atomic_write(folder / MANIFEST, manifest.encoded())


def verify(folder: Path, *, step: int, job_id: str | None) -> Manifest:
    """Read every byte of the snapshot in ``folder`` and return its manifest.

    Raises BadSnapshotError where it is damaged or belongs to another job, and OSError where the disk does not return
    it: a network file system may be away, or too many files be open, and the snapshot is as good as ever.

    ``torch.load`` notices neither a flipped bit nor a page of zeros, so nothing is loaded that was not checked here.
    """
    try:
        manifest = Manifest.parse((folder / MANIFEST).read_bytes())
        if manifest.step != step:
            raise BadSnapshotError(f"its manifest has step {manifest.step}, its directory {step}")
        if None not in (manifest.job_id, job_id) and manifest.job_id != job_id:
            raise BadSnapshotError(f"it belongs to job {manifest.job_id}, this is job {job_id}")
        for name, record in manifest.files.items():
            _verify_file(folder, name, record)
    except FileNotFoundError as error:
        raise BadSnapshotError(f"{Path(error.filename).name} is missing") from error
    except (NotADirectoryError, IsADirectoryError) as error:
        raise BadSnapshotError(f"it cannot be read: {error}") from error
    return manifest


def _verify_file(folder: Path, name: str, record: FileRecord) -> None:
    size = (folder / name).stat().st_size
    if size != record.bytes:
        raise BadSnapshotError(f"{name} has {size} bytes, its manifest says {record.bytes}")
    digest = hashlib.sha256()
    with (folder / name).open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != record.sha256:
        raise BadSnapshotError(f"{name} fails its checksum")
