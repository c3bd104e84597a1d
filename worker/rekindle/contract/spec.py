"""What a job is (fixed at submit) and what the server wants of it now (changes)."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

from rekindle.contract.typed_record import known_fields

DRAINED_EXIT_CODE = 75
"""Exit code (EX_TEMPFAIL of sysexits.h) by which a script says: I saved and stopped because I was asked to."""


class TargetKind(StrEnum):
    """What torchrun is given to run."""

    SCRIPT = "script"  # a file, relative to the code directory
    MODULE = "module"  # a module, as for `python -m`
    RECIPE = "recipe"  # one of rekindle.recipes


@dataclass(frozen=True, slots=True)
class Cadence:
    """When to take a snapshot, whichever is due first, and which to keep. Nothing said about when means ``auto``.

    ``auto``: as often as it pays, by what a snapshot costs and how often the job fails; also at the end of an epoch.
    ``best`` is a logged metric, ``accuracy`` or, where less is better, ``-loss``: the best snapshot is kept beyond
    the newest ``keep``.
    """

    every_steps: int | None = None
    every_seconds: float | None = None
    every_epochs: int | None = None
    keep: int = 3
    auto: bool = False
    best: str | None = None


@dataclass(frozen=True, slots=True)
class JobSpec:
    """All that a keeper needs to run a job. ``spec.json``; written once."""

    job_id: str
    name: str
    kind: TargetKind
    target: str
    python: str
    device: str  # "cpu" or "cuda": "auto" was decided at submit
    min_ranks: int
    max_ranks: int
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    max_failures: int = 3
    hang_timeout: float | None = None  # seconds
    time_limit: float | None = None  # seconds
    cadence: Cadence = field(default_factory=Cadence)
    warm: bool = True

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Fields of a newer version are passed over: a keeper outlives the upgrade of its server, and the reverse."""
        cadence = Cadence(**known_fields(Cadence, value["cadence"]))
        return cls(**{**known_fields(cls, value), "kind": TargetKind(value["kind"]), "cadence": cadence})


class Want(StrEnum):
    """The server's wish for a run that has a keeper."""

    RUN = "run"  # train, and after failures train on
    DRAIN = "drain"  # save at a step boundary and stop; the job goes back to the queue, held
    CANCEL = "cancel"  # stop for good


@dataclass(frozen=True, slots=True)
class Intent:
    """``intent.json``: the server's only way to speak to a keeper.

    ``run`` counts the times that the job was sent off from the queue; a keeper relaunched because the last one died
    carries on the same run (and its failure budget), a resume by the user begins the next one.
    ``devices`` has one slot name per rank: its length is the world size. ``snapshot`` is the step of the snapshot that
    the run is to begin from, where a person has chosen another than the newest.
    """

    want: Want
    run: int
    devices: list[str]
    max_failures: int = 3
    snapshot: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Fields of a newer version are passed over, as in ``JobSpec``."""
        return cls(**{**known_fields(cls, value), "want": Want(value["want"])})
