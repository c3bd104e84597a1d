"""What a person asks for (``JobSpec``, fixed at submit) and what the server intends for it now (``RunIntent``)."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from rekindle.contract.job_options import JobOptions
from rekindle.contract.run_dir.json_records import JsonRecord, shallow_json
from rekindle.contract.states import JobIntent

DRAINED_EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: the script saved and stopped because it was asked to

HIDDEN = "•••"
"""Stands for the value of an environment variable, which may be a secret."""

HEALTHY_SECONDS = 600.0
"""Default of the setting ``healthy_seconds``, for which a running attempt clears the count of failures."""

HOST_TIMEOUT = 60.0
"""Default of the setting ``host_timeout``: seconds after which a node of which nothing is heard counts as lost."""

MIN_LOG_BYTES = 1 << 20
"""Least value of the setting ``log_bytes``."""


@dataclass(frozen=True, slots=True)
class JobSpec(JobOptions):
    """All that a person asks for, with every default filled in. ``spec.json``; written once."""

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
        slurm, replay = (None if each is None else each.to_json() for each in (self.slurm, self.replay))
        return {**shallow_json(self), "snapshot": shallow_json(self.snapshot), "slurm": slurm, "replay": replay}


@dataclass(frozen=True, slots=True)
class RunIntent(JsonRecord):
    """``intent.json``: the server's only message to a keeper.

    ``run`` counts how often the job left the queue; a keeper relaunched because the last one died continues the same
    run (and its failure budget), a resume by the user begins the next one. ``devices`` has ``devices_per_rank`` slot
    names for each rank; other ones within a run ask the keeper to continue on these, with as many ranks as they have
    room for. ``gpus`` are their values in CUDA_VISIBLE_DEVICES; None from a server that does not change the devices of
    a run. ``reason`` says in a sentence for what the keeper is to stop or to change devices.

    ``snapshot`` is the step of the snapshot that the run is to begin from, where a person has chosen another than the
    latest; ``checkpoint`` is the absolute path of a checkpoint of the script's own. An attempt that ran for
    ``healthy_seconds`` clears the count of failures where it is not known whether the script makes progress.
    ``log_bytes`` is the space that each log of a rank may take.

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
    checkpoint: str | None = None
    excluded: dict[str, str] = field(default_factory=dict)
