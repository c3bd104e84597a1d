"""What ``squeue`` prints, as values."""

import re
from dataclasses import dataclass
from enum import StrEnum

FORMAT = "%i|%j|%T|%S|%N|%r|%k"
"""Id, name, state, (expected) start in seconds since the epoch, nodes, reason, comment."""

_FIELDS = FORMAT.count("|") + 1
_NAME = re.compile(r"rekindle-[a-z0-9]{10}-\d{1,9}")
_NODES = re.compile(r"([^,\[\]]*)(?:\[([0-9,-]+)\])?([^,\[\]]*)(?:,|$)")
_MAX_NODES = 4096


class ListingError(Exception):
    """A line about a job of rekindle is not what ``FORMAT`` requests."""


class Stage(StrEnum):
    """What a state of Slurm means for the keeper."""

    WAITING = "waiting"  # it has not started, or not again
    RUNNING = "running"
    STOPPED = "stopped"  # Slurm has suspended it
    ENDED = "ended"


_STAGES = {
    "PENDING": Stage.WAITING, "CONFIGURING": Stage.WAITING, "REQUEUED": Stage.WAITING, "REQUEUE_FED": Stage.WAITING,
    "REQUEUE_HOLD": Stage.WAITING, "SPECIAL_EXIT": Stage.WAITING, "RESV_DEL_HOLD": Stage.WAITING,
    "RUNNING": Stage.RUNNING, "COMPLETING": Stage.RUNNING, "SIGNALING": Stage.RUNNING, "STAGE_OUT": Stage.RUNNING,
    "RESIZING": Stage.RUNNING, "SUSPENDED": Stage.STOPPED, "STOPPED": Stage.STOPPED,
    "COMPLETED": Stage.ENDED, "FAILED": Stage.ENDED, "CANCELLED": Stage.ENDED, "TIMEOUT": Stage.ENDED,
    "NODE_FAIL": Stage.ENDED, "PREEMPTED": Stage.ENDED, "BOOT_FAIL": Stage.ENDED, "DEADLINE": Stage.ENDED,
    "OUT_OF_MEMORY": Stage.ENDED, "REVOKED": Stage.ENDED,
}  # fmt: skip
"""A state that a later Slurm adds counts as running: then the keeper's own signs of life decide."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One line of ``squeue``. ``start``: when it began or is expected to, in seconds since the epoch."""

    id: int
    name: str
    state: str
    start: float | None = None
    hosts: tuple[str, ...] = ()
    reason: str = ""
    comment: str = ""

    @property
    def stage(self) -> Stage:
        return _STAGES.get(self.state, Stage.RUNNING)


def job_name(job_id: str, launch: int) -> str:
    """By which the Slurm job of a launch is found, whatever became of the server that has made it."""
    return f"rekindle-{job_id}-{launch}"


def parse_listing(text: str) -> dict[str, SlurmJob]:
    """The jobs of rekindle by name; others are skipped. Raises ListingError."""
    jobs: dict[str, SlurmJob] = {}
    for line in text.splitlines():
        fields = line.strip().split("|", _FIELDS - 1)
        if len(fields) < 2 or not _NAME.fullmatch(fields[1]):
            continue
        job = _job(fields, line)
        if job.name not in jobs or jobs[job.name].id < job.id:
            jobs[job.name] = job
    return jobs


def _job(fields: list[str], line: str) -> SlurmJob:
    if len(fields) != _FIELDS or not fields[0].isdecimal() or not fields[2].isidentifier():
        raise ListingError(line[:200])
    identifier, name, state, start, nodes, reason, comment = fields
    began = float(start) if start.isdecimal() else None
    reason = "" if reason in ("None", "(null)") else reason.replace("_", " ")
    return SlurmJob(int(identifier), name, state, began, expand_hosts(nodes), reason, comment)


def expand_hosts(nodes: str) -> tuple[str, ...]:
    """``n[1-2,07],login`` as names, at most 4096; one that is not understood stays as it is."""
    hosts: list[str] = []
    for match in _NODES.finditer("" if nodes in ("(null)", "n/a") else nodes):
        before, ranges, after = match.groups()
        if ranges is None:
            hosts += [before] if before else []
            continue
        for each in ranges.split(","):
            first, _, last = each.partition("-")
            width = len(first)
            numbers = range(int(first), min(int(last or first), int(first) + _MAX_NODES) + 1)
            hosts += [f"{before}{number:0{width}d}{after}" for number in numbers]
    return tuple(hosts[:_MAX_NODES])
