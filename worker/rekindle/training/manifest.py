"""``manifest.json`` of a snapshot: written last, it says that the snapshot is whole and what its bytes must be."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from rekindle.contract.files import atomic_write
from rekindle.contract.score import Score

NAME = "manifest.json"
MODEL = "model.pt"
"""What all ranks share, saved once."""

_FORMAT = 1
_CHUNK = 1 << 20  # bytes


def rank_file(rank: int) -> str:
    """What one rank saves for itself."""
    return f"rank-{rank}.pt"


def shard_file(rank: int) -> str:
    """What one rank saves of tensors that are divided among the ranks; all ranks have one, or none has."""
    return f"shards-{rank}.pt"


def expected_files(world_size: int, *, sharded: bool) -> set[str]:
    """All files that a manifest must list."""
    kinds = (rank_file, shard_file) if sharded else (rank_file,)
    return {MODEL, *(name(rank) for name in kinds for rank in range(world_size))}


class BadSnapshotError(Exception):
    """A snapshot that must not be used; the text says why."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file of a snapshot."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the service reads too; keep ``format`` in step with it."""

    job_id: str | None
    step: int
    epoch: int | None
    world_size: int
    created_at: float  # seconds since the epoch
    generation: str
    torch: str
    files: dict[str, FileRecord]
    score: Score | None = None  # left out where there is none

    @property
    def sharded(self) -> bool:
        """Tensors were divided among the ranks."""
        return shard_file(0) in self.files

    def to_json(self) -> dict[str, Any]:
        fields = {"format": _FORMAT, **asdict(self)}
        if self.score is None:
            del fields["score"]
        return {**fields, "sha256": _digest(fields)}

    def encoded(self) -> bytes:
        """The file, to the byte: one that differs in a blank only has been changed by somebody, or was cut short."""
        return json.dumps(self.to_json(), allow_nan=False).encode() + b"\n"

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Raises BadSnapshotError where ``value`` is not a manifest of a format known here."""
        try:
            fields = dict(value)
            digest = fields.pop("sha256", None)
            if fields["format"] != _FORMAT:
                raise BadSnapshotError(f"its format is {fields['format']!r}, this rekindle reads {_FORMAT}")
            if digest != _digest(fields):
                raise BadSnapshotError(f"{NAME} fails its checksum")
            del fields["format"]
            files = {name: FileRecord(**record) for name, record in fields.pop("files").items()}
            score = fields.pop("score", None)
            manifest = cls(**fields, files=files, score=None if score is None else Score(**score))
            expected = expected_files(manifest.world_size, sharded=manifest.sharded)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise BadSnapshotError(f"{NAME} is not a manifest: {error!r}") from error
        if set(files) != expected:
            raise BadSnapshotError(f"{NAME} lists {sorted(files)}, not the files of {manifest.world_size} ranks")
        return manifest


def _digest(fields: dict[str, Any]) -> str:
    """The manifest's own checksum, over all its other fields."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Complete ``folder``, whose files must be on disk by now."""
    atomic_write(folder / NAME, manifest.encoded())


def read_score(folder: Path) -> Score | None:
    """What the manifest in ``folder`` tells of how good the snapshot is; None, too, where it cannot be read."""
    try:
        return Manifest.from_json(json.loads((folder / NAME).read_bytes())).score
    except (OSError, ValueError, BadSnapshotError):
        return None


def read_owner(folder: Path) -> str | None:
    """The job that the manifest in ``folder`` names; None where it names none or cannot be read."""
    try:
        return Manifest.from_json(json.loads((folder / NAME).read_bytes())).job_id
    except (OSError, ValueError, BadSnapshotError):
        return None


def verify(folder: Path, *, step: int, job_id: str | None) -> Manifest:
    """Read every byte of the snapshot in ``folder`` and return its manifest.

    Raises BadSnapshotError where it is damaged or another's, and OSError where the disk does not give it: that may be
    a network file system which is away, or too many open files, and the snapshot as good as ever.

    ``torch.load`` notices neither a flipped bit nor a page of zeros, so nothing is loaded that was not checked here.
    """
    try:
        data = (folder / NAME).read_bytes()
        manifest = Manifest.from_json(json.loads(data))
        if data != manifest.encoded():
            raise BadSnapshotError(f"{NAME} is not as it was written")
        if manifest.step != step:
            raise BadSnapshotError(f"its manifest says step {manifest.step}, its folder {step}")
        if None not in (manifest.job_id, job_id) and manifest.job_id != job_id:
            raise BadSnapshotError(f"it belongs to job {manifest.job_id}, this is job {job_id}")
        for name, record in manifest.files.items():
            _verify_file(folder, name, record)
    except FileNotFoundError as error:
        raise BadSnapshotError(f"{Path(error.filename).name} is missing") from error
    except (NotADirectoryError, IsADirectoryError, ValueError) as error:
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
