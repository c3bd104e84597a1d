"""The snapshot directory: the names in it, and the manifest that makes a snapshot whole. No tensor is read here.

``000000000040``            the snapshot of step 40, whole
``.tmp-<gen>-…40``          being written by generation <gen>; means nothing after a kill
``.old-<gen>-…40``          step 40, renamed to make room for a newer snapshot of the same step
``.trash-<gen>-…40``        being deleted
``quarantine-…40``          failed its checks, or the training was rolled back; kept until newer ones are safe
"""

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from rekindle.contract.files import read_json, write_json
from rekindle.contract.job_options import MAX_RANKS
from rekindle.contract.run_dir.json_records import Count, Line, Range, structure
from rekindle.contract.safe_open import open_regular

MANIFEST = "manifest.json"
MODEL = "model.pt"  # the state that all ranks share, saved once

MAX_MANIFEST_BYTES = 4 << 20
_FORMAT = 1
_DIGITS = 12
_QUARANTINE = "quarantine-"
NO_SNAPSHOTS = (".tmp-", ".old-", ".trash-", _QUARANTINE)  # prefixes of directories that are no committed snapshots


def step_name(step: int) -> str:
    """The name of the directory of a snapshot."""
    return f"{step:0{_DIGITS}d}"


def step_of(name: str) -> int | None:
    """The step of the snapshot whose directory has this name; None for any other name."""
    return int(name) if len(name) == _DIGITS and name.isascii() and name.isdecimal() else None


def rank_file(rank: int) -> str:
    """Name of the file with the state of one rank alone."""
    return f"rank-{rank}.pt"


def shard_file(rank: int) -> str:
    """Name of the file with one rank's shards of sharded tensors; all ranks have one, or none has."""
    return f"shards-{rank}.pt"


@dataclass(frozen=True, slots=True)
class SnapshotDir:
    """The directory of all snapshots of a run."""

    root: Path

    def path(self, step: int) -> Path:
        return self.root / step_name(step)

    def quarantine_path(self, step: int) -> Path:
        return self.root / f"{_QUARANTINE}{step_name(step)}"

    def quarantined(self) -> list[int]:
        """The steps of all quarantined snapshots, latest first."""
        return self.steps(_QUARANTINE)

    def manifest(self, step: int) -> "Manifest | None":
        """The manifest of ``step``; None where there is none, or it cannot be read."""
        with suppress(OSError, BadSnapshotError), open_regular(self.path(step) / MANIFEST) as file:
            return Manifest.parse(file.read(MAX_MANIFEST_BYTES))
        return None

    def steps(self, prefix: str = "") -> list[int]:
        """The steps of all committed snapshots, latest first. Committed is not yet intact: see ``Manifest``."""
        if not self.root.is_dir():
            return []
        names = (entry.name for entry in self.root.iterdir())
        steps = (step_of(name.removeprefix(prefix)) for name in names if name.startswith(prefix))
        return sorted((step for step in steps if step is not None), reverse=True)


def read_pins(path: Path) -> frozenset[int]:
    """The steps of the snapshots that a person wants kept for good."""
    value = read_json(path)
    steps = value.get("steps") if isinstance(value, dict) else None
    return frozenset(step for step in steps if type(step) is int) if isinstance(steps, list) else frozenset()


def write_pins(path: Path, steps: Collection[int]) -> None:
    """Store the pins, which hold for every deletion that begins after the return."""
    write_json(path, {"steps": sorted(steps)})


def read_void_attempt(path: Path) -> int:
    """The latest attempt whose snapshots in memory no machine may use any more; 0 where all may be used."""
    value = read_json(path)
    attempt = value.get("attempt") if isinstance(value, dict) else None
    return attempt if type(attempt) is int else 0


def write_void_attempt(path: Path, attempt: int) -> None:
    """Store the void attempt, which holds on every machine from the next attempt on, whatever its memory has."""
    write_json(path, {"attempt": attempt})


@dataclass(frozen=True, slots=True)
class SnapshotScore:
    """How good a snapshot is. ``by``: the name of a logged metric, with ``-`` before it where less is better."""

    by: str
    value: float

    @property
    def sort_key(self) -> float:
        return -self.value if self.by.startswith("-") else self.value

    def is_better_than(self, other: "SnapshotScore | None") -> bool:
        """Whether a snapshot of this score is to be the best instead of one of ``other``, taken by the same metric.

        Scores by another metric cannot be compared: the new one goes before them. An equal one changes nothing.
        """
        if not math.isfinite(self.value):
            return False
        return other is None or other.by != self.by or self.sort_key > other.sort_key


def metric_of(by: str) -> str:
    """The name of the metric. Raises ValueError where ``by`` has none."""
    name = by.removeprefix("-")
    if not name.strip() or name != name.strip():
        raise ValueError(f"best must be the name of a logged metric, 'accuracy' or '-loss', not {by!r}")
    return name


def best_step(scores: Mapping[int, SnapshotScore]) -> int | None:
    """The step of the best snapshot by the metric of the latest one that has a score; of equal ones the oldest."""
    best: int | None = None
    for step in sorted(scores):
        if scores[step].is_better_than(None if best is None else scores[best]):
            best = step
    return best


class BadSnapshotError(Exception):
    """A snapshot that must not be used; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """One file of a snapshot."""

    bytes: Count
    sha256: Line


@dataclass(frozen=True, slots=True)
class Manifest:
    """``manifest.json``: written last, it marks the snapshot as whole and records what its bytes must be."""

    job_id: Line | None
    step: Count
    epoch: int | None
    world_size: Annotated[int, Range(1, MAX_RANKS)]
    created_at: float  # seconds since the epoch
    generation: Line
    torch: Line
    files: dict[str, SnapshotFile]
    score: SnapshotScore | None = None  # not written where there is none

    @property
    def sharded(self) -> bool:
        """True where the ranks saved shards of tensors."""
        return shard_file(0) in self.files

    @property
    def attempt(self) -> int:
        """The number with which a keeper's generation begins; 1 outside rekindle."""
        number = self.generation.partition("-")[0]
        return int(number) if "-" in self.generation and number.isdecimal() else 1

    @property
    def size(self) -> int:
        """Bytes of all files of the snapshot together."""
        return sum(record.bytes for record in self.files.values())

    def encoded(self) -> bytes:
        """Encode the manifest, always to the same bytes."""
        fields = {"format": _FORMAT, **asdict(self)}
        if self.score is None:
            del fields["score"]
        return json.dumps({**fields, "sha256": _checksum(fields)}, allow_nan=False).encode() + b"\n"

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read a manifest. Raises BadSnapshotError where ``data`` is not, to the byte, one of the format known here."""
        try:
            fields = dict(json.loads(data))
            checksum = fields.pop("sha256", None)
            if fields["format"] != _FORMAT:
                raise BadSnapshotError(f"its format is {fields['format']!r}, this rekindle reads {_FORMAT}")
            if checksum != _checksum(fields):
                raise BadSnapshotError(f"{MANIFEST} fails its checksum")
            manifest = structure(cls, fields)
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
            raise BadSnapshotError(f"{MANIFEST} is not a manifest: {error!r}") from error
        if not manifest._lists_all_files():
            raise BadSnapshotError(
                f"{MANIFEST} lists {sorted(manifest.files)}, not the files of {manifest.world_size} ranks"
            )
        if data != manifest.encoded():
            raise BadSnapshotError(f"{MANIFEST} is not as it was written")
        return manifest

    def _lists_all_files(self) -> bool:
        """True for all files and no other, whose name could lead out of it. Counts first: ``world_size`` may be big."""
        kinds = (rank_file, shard_file) if self.sharded else (rank_file,)
        if len(self.files) != 1 + self.world_size * len(kinds):
            return False
        return set(self.files) == {MODEL, *(name(rank) for name in kinds for rank in range(self.world_size))}


def _checksum(fields: dict[str, Any]) -> str:
    """The manifest's checksum over all its other fields."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
