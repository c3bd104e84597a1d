"""What coordinators report: their signs of life, and nodes on which jobs could not run.

A sign of life is a file that each replaces every few seconds, timed by this machine's own clock. Slurm is asked for
other nodes than those, for a while.
"""

import os
import re
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rekindle.contract.files import last_line_of, parse_json
from rekindle.contract.run_dir.coordinator_records import COMMENT, CoordinatorBeat
from rekindle.contract.run_dir.json_records import read_record, structure
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.safe_open import open_beneath, read_end
from rekindle_service.launch.slurm.slurm_commands import SlurmJob
from rekindle_service.store.tables import Job

_READ_INTERVAL = 1.0  # seconds between two reads of one file
_MAX_BYTES = 1 << 20
EVIDENCE_BYTES = 4000  # of the end of a log
_NODE = re.compile(r"rekindle: node (\S+): (.*)")  # of a log: why the coordinator cannot start there
_TOLERANCE = 1.0  # seconds by which clocks may differ unnoticed


@dataclass(slots=True)
class _Beat:
    """What the file of one launch had at the latest read. Times of time.monotonic()."""

    content: CoordinatorBeat | None
    modified_at: float  # seconds since the epoch, by the clock of the file system
    written_at: float  # when it was seen to change; negative infinity where that was before the first read
    changed_at: float  # the same, or when ``restart`` was called
    read_at: float


class Beats:
    """One thread at a time may ask for one job."""

    def __init__(self, home: Path) -> None:
        self._known: dict[tuple[str, int], _Beat] = {}
        self._behind = _seconds_behind(home)

    def changed_at(self, run_dir: RunDir, launch: int) -> float:
        """When the file was last seen to change, or first seen; it may have changed a second ago. Raises OSError."""
        return self._read(run_dir, launch).changed_at

    def written_at(self, run_dir: RunDir, launch: int) -> float:
        """When the keeper was last seen to write, or to have written; negative infinity before. Raises OSError."""
        return self._read(run_dir, launch).written_at

    def content(self, run_dir: RunDir, launch: int) -> CoordinatorBeat | None:
        """What the keeper has written there; None where there is nothing yet."""
        return self._read(run_dir, launch).content

    def seconds_ahead(self, run_dir: RunDir, launch: int) -> float:
        """How far the times in the journal are ahead of this machine's clock; 0 where they agree, or nobody knows."""
        known = self._read(run_dir, launch)
        if known.content is None or known.content.at is None:
            return 0.0
        ahead = known.content.at - (known.modified_at + self._behind)
        return ahead if abs(ahead) > _TOLERANCE else 0.0

    def _read(self, run_dir: RunDir, launch: int) -> _Beat:
        now, key = time.monotonic(), (run_dir.job_id, launch)
        known = self._known.get(key)
        if known is not None and now - known.read_at < _READ_INTERVAL:
            return known
        content, modified_at = _read_beat(run_dir, launch)
        if known is None:
            written_at = float("-inf") if content is None else time.monotonic()  # at the latest
            known = self._known[key] = _Beat(content, modified_at, written_at, time.monotonic(), now)
        elif content != known.content:
            known = self._known[key] = _Beat(content, modified_at, time.monotonic(), time.monotonic(), now)
        known.read_at = now
        return known

    def restart(self, run_dir: RunDir, launch: int) -> None:
        """Count the silence from now: until now nothing could be expected of the keeper."""
        if (known := self._known.get((run_dir.job_id, launch))) is not None:
            known.changed_at = time.monotonic()

    def forget(self, job_ids: set[str]) -> None:
        """Forget what all other jobs have written."""
        for key in [each for each in list(self._known) if each[0] not in job_ids]:
            del self._known[key]


def _read_beat(run_dir: RunDir, launch: int) -> tuple[CoordinatorBeat | None, float]:
    """What the coordinator has written last, and when."""
    if (file := open_beneath(run_dir.root, run_dir.launch(launch).beat)) is None:
        return None, 0.0
    with file:
        try:
            content = structure(CoordinatorBeat, parse_json(file.read(_MAX_BYTES)))
        except ValueError:
            content = None
        return content, os.fstat(file.fileno()).st_mtime


def _seconds_behind(directory: Path) -> float:
    """How far the clock of the file system of ``directory`` is behind that of this machine."""
    with suppress(OSError), tempfile.TemporaryFile(dir=directory) as file:
        file.write(b"x")
        file.flush()
        return time.time() - os.fstat(file.fileno()).st_mtime
    return 0.0


EXCLUDED_SECONDS = 1800.0  # somebody may have mended the node by then
MAX_NODES = 10  # that fail one job: then it is not the nodes


@dataclass(frozen=True, slots=True)
class ExcludedNode:
    """``until``: seconds since the epoch. ``run``: of the job that has found it; a resume tries the node again."""

    reason: str
    until: float
    run: int


@dataclass(slots=True)
class _Finding:
    """What one job has found: it holds for all with the same interpreter."""

    python: str
    nodes: dict[str, ExcludedNode]


class ExcludedNodes:
    """One thread at a time may call it for one job. What unfinished jobs have found is in their rows, too."""

    def __init__(self) -> None:
        self._findings: dict[str, _Finding] = {}

    def own(self, job: Job) -> dict[str, ExcludedNode]:
        """What the job itself has found, by host."""
        if job.id not in self._findings:
            stored = (job.slurm or {}).get("excluded") or {}
            nodes = {host: structure(ExcludedNode, each) for host, each in stored.items()}
            self._findings[job.id] = _Finding(job.spec.python, nodes)
        finding, now = self._findings[job.id], time.time()
        valid = {host: node for host, node in finding.nodes.items() if node.until > now and node.run == job.run}
        finding.nodes = valid
        return finding.nodes

    def for_job(self, job: Job) -> dict[str, ExcludedNode]:
        """What the job and others with the same interpreter have found."""
        now = time.time()
        others = [each.nodes for each in list(self._findings.values()) if each.python == job.spec.python]
        found = {host: node for nodes in others for host, node in nodes.items() if node.until > now}
        return found | self.own(job)

    def forget(self, job_ids: set[str]) -> None:
        """Drop what other jobs have found and what has expired."""
        now = time.time()
        for job_id in [each for each in list(self._findings) if each not in job_ids]:
            if all(node.until <= now for node in self._findings[job_id].nodes.values()):
                del self._findings[job_id]

    def column(self, job: Job) -> dict[str, Any]:
        """``own``, as ``Job.slurm`` has it."""
        return {host: asdict(node) for host, node in self.own(job).items()}

    def add(self, job: Job, found: Mapping[str, str]) -> None:
        """Reasons by host. The first reason stays: a later one may be poorer."""
        known, until = self.own(job), time.time() + EXCLUDED_SECONDS
        known |= {host: ExcludedNode(reason, until, job.run) for host, reason in found.items() if host not in known}

    def remove(self, job: Job, hosts: Iterable[str]) -> None:
        """They are well again."""
        well = set(hosts)
        for each in list(self._findings.values()):
            if each.python == job.spec.python and not well.isdisjoint(each.nodes):
                each.nodes = {host: node for host, node in each.nodes.items() if host not in well}


def bad_nodes(run_dir: RunDir, number: int, found: SlurmJob) -> dict[str, str]:
    """Find the nodes that the coordinator has named last, or the one on which it could not start or write.

    ``number``: of the launch.
    """
    launch = run_dir.launch(number)
    beat = read_record(launch.beat, CoordinatorBeat, run_dir.root)
    if beat is not None and beat.excluded:
        return beat.excluded
    if found.comment.startswith(COMMENT):
        host, _, reason = found.comment.removeprefix(COMMENT).partition(": ")
        return {host: reason}
    tail = read_end(launch.slurm_log, EVIDENCE_BYTES)
    if (match := _NODE.search(tail)) is not None:
        return {match[1]: match[2]}
    if not found.hosts or launch.leader.exists():
        return {}
    last = last_line_of(tail) or "it may not see the home, or may not write it"
    return {found.hosts[0]: f"Slurm job {found.id} ended there as soon as it had begun: {last}"}
