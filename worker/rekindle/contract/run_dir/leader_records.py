"""What the leading keeper of a job on a cluster writes about itself into ``launches/<n>``."""

from dataclasses import dataclass, field

from rekindle.contract.run_dir.json_records import Count, JsonRecord, Line


@dataclass(frozen=True, slots=True)
class Leader(JsonRecord):
    """``leader.json``, readable by the job's user only: where the keepers of the nodes find it, and what they say."""

    address: Line  # IPv4
    port: Count
    secret: Line
    host: Line
    pid: Count
    restart: Count = 0  # how often Slurm has requeued the launch
    hosts: list[Line] = field(default_factory=list)  # of the allocation


@dataclass(frozen=True, slots=True)
class LeaderBeat(JsonRecord):
    """``beat.json``: another ``beat`` every few seconds, for as long as the leading keeper lives."""

    beat: Count
    restart: Count = 0
