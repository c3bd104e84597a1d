"""Nodes on which jobs could not run: Slurm is asked for others, for a while."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rekindle.contract.run_dir.json_records import structure
from rekindle_service.store.tables import Job

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
