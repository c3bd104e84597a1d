"""What a person asks for (``JobSpec``, fixed at submit) and what the server intends for it now (``RunIntent``)."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from rekindle.contract.run_dir.json_records import JsonRecord
from rekindle.contract.states import JobIntent

DRAINED_EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: the script saved and stopped because it was asked to

HEALTHY_SECONDS = 600.0
"""Default of the setting ``healthy_seconds``, for which a running attempt clears the count of failures."""


class TargetKind(StrEnum):
    """What torchrun is given to run."""

    SCRIPT = "script"  # a file, relative to the code directory
    MODULE = "module"  # a module, as for `python -m`
    RECIPE = "recipe"  # one of rekindle.recipes


@dataclass(frozen=True, slots=True)
class SnapshotPolicy(JsonRecord):
    """When to take a snapshot, whichever is due first, and which to keep. Without any rule for when: ``auto``.

    ``auto``: the interval that costs least, from the cost of a snapshot and the rate of failures; also at the end of
    an epoch. ``monitor`` is a logged metric, ``accuracy`` or, where less is better, ``-loss``: the best snapshot is
    kept in addition to the latest ``keep_last``.
    """

    keys: ClassVar = {"keep_last": "keep"}
    every_steps: int | None = None
    every_seconds: float | None = None
    every_epochs: int | None = None
    keep_last: int = 3
    auto: bool = False
    monitor: str | None = None


@dataclass(frozen=True, slots=True)
class JobSpec(JsonRecord):
    """All that a person asks for, with every default filled in. ``spec.json``; written once."""

    name: str
    kind: TargetKind
    target: str
    python: str  # absolute path of an interpreter
    args: list[str] = field(default_factory=list)
    code: dict[str, str] = field(default_factory=dict)  # its source: path, bundle, or git with ref and commit
    env: dict[str, str] = field(default_factory=dict)
    min_ranks: int = 1
    max_ranks: int = 1
    nodes: int = 1
    device: str = "auto"  # or "cpu" or "cuda"; never "auto" once it is accepted
    priority: int = 0  # higher goes first
    after: list[str] = field(default_factory=list)  # ids of the jobs that must have succeeded before
    max_failures: int = 3  # in a row without progress
    hang_timeout: float | None = None  # seconds
    time_limit: float | None = None  # seconds
    snapshot: SnapshotPolicy = field(default_factory=SnapshotPolicy)
    warm: bool = True
    watch: list[str] = field(default_factory=list)  # paths in which every file is a checkpoint of the script's own
    on_restart: list[str] = field(default_factory=list)  # appended to ``args``, see ``contract.placeholders``
    continue_from: str | None = None  # id of the job whose files and snapshots this one begins with
    exclude: list[str] = field(default_factory=list)  # patterns, as in a .gitignore, of what is not copied
    gitignore: bool = False  # leave out what .gitignore files name
    keep_links: bool = False  # copy links that lead out of the code as links
    warnings: list[str] = field(default_factory=list)  # of the server, at submit

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "snapshot": self.snapshot.to_json()}


@dataclass(frozen=True, slots=True)
class RunIntent(JsonRecord):
    """``intent.json``: the server's only message to a keeper.

    ``run`` counts how often the job left the queue; a keeper relaunched because the last one died continues the same
    run (and its failure budget), a resume by the user begins the next one. ``devices`` has one slot name per rank: its
    length is the world size. ``snapshot`` is the step of the snapshot that the run is to begin from, where a person
    has chosen another than the latest. An attempt that ran for ``healthy_seconds`` clears the count of failures where
    it is not known whether the script makes progress.
    """

    keys: ClassVar = {"intent": "want"}  # as keepers of version 0.1.0 read it, which outlive an upgrade
    intent: JobIntent
    run: int
    devices: list[str]
    max_failures: int = 3
    snapshot: int | None = None
    healthy_seconds: float = HEALTHY_SECONDS
