"""What a person asks for (``JobSpec``, fixed at submit) and what the server intends for it now (``RunIntent``)."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from rekindle.contract.run_dir.json_records import JsonRecord, shallow_json
from rekindle.contract.states import JobIntent

DRAINED_EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: the script saved and stopped because it was asked to

MAX_RANKS = 4096  # of a job
HIDDEN = "•••"
"""Stands for the value of an environment variable, which may be a secret."""

HEALTHY_SECONDS = 600.0
"""Default of the setting ``healthy_seconds``, for which a running attempt clears the count of failures."""

HOST_TIMEOUT = 60.0
"""Default of the setting ``host_timeout``: seconds after which a node of which nothing is heard counts as lost."""

MIN_LOG_BYTES = 1 << 20
"""Least value of the setting ``log_bytes``."""


class TargetKind(StrEnum):
    """What the ranks run."""

    SCRIPT = "script"  # a file, relative to the code directory
    MODULE = "module"  # a module, as for `python -m`
    RECIPE = "recipe"  # one of rekindle.recipes


class LaunchMode(StrEnum):
    """How the processes of an attempt are started."""

    AUTO = "auto"  # never once the job is accepted
    TORCHRUN = "torchrun"  # one process per rank
    PROCESS = "process"  # one process, which is rank 0 and holds all devices, as with plain `python train.py`


class LinkRule(StrEnum):
    """What the links between the GPUs of a job must be; "linked" means joined by NVLink."""

    PREFERRED = "preferred"  # the free GPUs that reach each other best
    REQUIRED = "required"  # each pair is linked
    AVOIDED = "avoided"  # no pair is linked


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
class SlurmOptions(JsonRecord):
    """What ``sbatch`` is asked for, apart from the nodes; None leaves it to Slurm. Values are as sbatch takes them.

    ``extra`` are further options of ``sbatch``, each one argument (``--cpus-per-task=8``). ``prologue`` are lines for
    bash, which each node runs before its keeper: variables that they set reach the ranks.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: str | None = None  # of one allocation, after which the job continues in the next
    constraint: str | None = None
    mem: str | None = None  # of each node, as are the next two
    gres: str | None = None
    gpus_per_node: str | None = None  # None: as many as the ranks of a node need
    prologue: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class JobSpec(JsonRecord):
    """All that a person asks for, with every default filled in. ``spec.json``; written once."""

    name: str
    kind: TargetKind
    target: str
    python: str  # absolute path of an interpreter
    args: list[str] = field(default_factory=list)
    code: dict[str, str] = field(default_factory=dict)  # its source: path, bundle, or git with ref and commit
    env: dict[str, str] = field(default_factory=dict)  # stored with ``HIDDEN`` for each value
    env_from: dict[str, dict[str, str]] = field(default_factory=dict)  # by variable: {"file": path} or {"from": name}
    min_ranks: int = 1
    max_ranks: int = 1
    nodes: int = 1  # of a Slurm allocation, at most; each runs ``ranks_per_node``
    min_nodes: int = 1
    slurm: SlurmOptions | None = None  # runs on Slurm, where it is given
    device: str = "auto"  # or "cpu" or "cuda", or the slots to choose from: "cuda:5,cuda:6". Once accepted, not "auto"
    devices_per_rank: int = 1
    launch: LaunchMode = LaunchMode.TORCHRUN
    links: LinkRule = LinkRule.PREFERRED
    priority: int = 0  # higher goes first
    after: list[str] = field(default_factory=list)  # ids of the jobs that must have succeeded before
    after_any: list[str] = field(default_factory=list)  # ids of the jobs that must have ended before, however
    resizable: bool = True  # an elastic job may get other ranks while it runs
    gpu_share: float = 1.0  # part of each of its GPUs that the job takes, 0 to 1: the rest is for other such jobs
    max_failures: int = 3  # in a row without progress
    hang_timeout: float | None = None  # seconds
    time_limit: float | None = None  # seconds
    snapshot: SnapshotPolicy = field(default_factory=SnapshotPolicy)
    warm: bool = True
    watch: list[str] = field(default_factory=list)  # paths in which every file is a checkpoint of the script's own
    on_restart: list[str] = field(default_factory=list)  # appended to ``args``, see ``run_dir.placeholders``
    continue_from: str | None = None  # id of the job whose files and snapshots this one begins with
    continue_step: int | None = None  # of the snapshot from which it continues; None: the latest
    exclude: list[str] = field(default_factory=list)  # patterns, as in a .gitignore, of what is not copied
    gitignore: bool = False  # leave out what .gitignore files name
    keep_links: bool = False  # copy links that lead out of the code as links
    warnings: list[str] = field(default_factory=list)  # of the server, at submit

    @property
    def device_kind(self) -> str:
        """ "auto", "cpu" or "cuda"."""
        return self.device.partition(":")[0]

    @property
    def device_names(self) -> list[str]:
        """The only slots that the job may get; empty where any slot will do."""
        return self.device.split(",") if ":" in self.device else []

    @property
    def ranks_per_node(self) -> int:
        """``max_ranks`` is a multiple of ``nodes``, and ``min_ranks`` is ``min_nodes`` times this on Slurm."""
        return self.max_ranks // self.nodes

    @property
    def min_devices(self) -> int:
        return self.min_ranks * self.devices_per_rank

    @property
    def max_devices(self) -> int:
        return self.max_ranks * self.devices_per_rank

    def to_json(self) -> dict[str, Any]:
        """Lists and dictionaries are copies. ``asdict`` takes ten times as long, and lists of jobs have many specs."""
        slurm = None if self.slurm is None else self.slurm.to_json()
        return {**shallow_json(self), "snapshot": shallow_json(self.snapshot), "slurm": slurm}


@dataclass(frozen=True, slots=True)
class RunIntent(JsonRecord):
    """``intent.json``: the server's only message to a keeper.

    ``run`` counts how often the job left the queue; a keeper relaunched because the last one died continues the same
    run (and its failure budget), a resume by the user begins the next one. ``devices`` has ``devices_per_rank`` slot
    names for each rank; other ones within a run ask the keeper to continue on these, with as many ranks as they have
    room for. ``gpus`` are their values in CUDA_VISIBLE_DEVICES; None from a server that does not change the devices of
    a run. ``reason`` says in a sentence for what the keeper is to stop or to change devices.

    ``snapshot`` is the step of the snapshot that the run is to begin from, where a person has chosen another than the
    latest. An attempt that ran for ``healthy_seconds`` clears the count of failures where it is not known whether the
    script makes progress. ``log_bytes`` is the space that each log of a rank may take.

    ``launch`` is the number of the Slurm job that may act for the job: a coordinator of a lower number stops at
    once. 0 on this machine, where a lock decides. ``devices`` is empty on Slurm. A node that has not been heard for
    ``host_timeout`` seconds counts as lost. ``excluded``: nodes on which the job could not run, each with the reason.
    """

    keys: ClassVar = {"intent": "want"}  # as in every stored intent.json
    intent: JobIntent
    run: int
    devices: list[str]
    max_failures: int = 3
    snapshot: int | None = None
    healthy_seconds: float = HEALTHY_SECONDS
    log_bytes: int | None = None  # no limit
    launch: int = 0
    host_timeout: float = HOST_TIMEOUT
    gpus: list[str] | None = None
    reason: str | None = None
    excluded: dict[str, str] = field(default_factory=dict)
