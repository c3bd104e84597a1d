"""What the coordinator, the keeper that leads a job on a cluster, writes about itself into ``launches/<n>``."""

from dataclasses import dataclass, field

from rekindle.contract.run_dir.json_records import Count, JsonRecord, Line

COMMENT = "rekindle: "
"""Begins the comment of a Slurm job whose coordinator could write nothing: ``rekindle: HOST: REASON``."""


@dataclass(frozen=True, slots=True)
class Coordinator(JsonRecord):
    """``leader.json``, readable by the job's user only: where the keepers of the nodes connect, and a secret."""

    address: Line  # IPv4
    port: Count
    secret: Line
    host: Line
    pid: Count
    restart: Count = 0  # how often Slurm has requeued the launch
    hosts: list[Line] = field(default_factory=list)  # of the allocation


@dataclass(frozen=True, slots=True)
class CoordinatorBeat(JsonRecord):
    """``beat.json``: another ``beat`` every few seconds, for as long as the coordinator lives.

    ``at``: the time of day by which it writes the journal, in seconds since the epoch. ``clocks``: seconds by which
    those of the nodes are ahead of that. ``missing``: nodes of the allocation that the job cannot use now, each with
    the reason; ``excluded``: those of them that the next Slurm job must not get.
    """

    beat: Count
    restart: Count = 0
    at: float | None = None
    clocks: dict[str, float] = field(default_factory=dict)
    missing: dict[str, Line] = field(default_factory=dict)
    excluded: dict[str, Line] = field(default_factory=dict)
