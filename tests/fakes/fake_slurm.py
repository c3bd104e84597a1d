"""A cluster without machines: what ``SlurmCommands`` runs, answered from memory. Jobs move when the test says so."""

import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class FakeJob:
    id: int
    name: str
    options: dict[str, str]
    script: Path
    state: str = "PENDING"
    reason: str = "Priority"
    nodes: str = ""
    comment: str = "(null)"


@dataclass
class FakeSlurm:
    """``refusal``: what sbatch answers, on standard error. ``down``: the controller does not answer.

    ``refused``: how an option of the jobs that sbatch refuses so begins; None: all are.
    """

    jobs: dict[int, FakeJob] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    down: bool = False
    refusal: str | None = None
    refused: str | None = None
    loses_answer: bool = False  # sbatch is accepted, and its answer is lost
    unusable: str = ""  # nodes that are down or drained
    gres: str = "(null)\n"
    started: list[int] = field(default_factory=list)  # by scontrol update StartTime=now
    updated: list[list[str]] = field(default_factory=list)  # what scontrol update was given

    def __call__(self, command: Sequence[str], _: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
        program, *arguments = command
        self.calls[program] += 1
        if self.down:
            stderr = f"{program}: error: Unable to contact slurm controller (connect failure)\n"
            return subprocess.CompletedProcess(command, 1, "", stderr)
        code, stdout, stderr = getattr(self, f"_{program}")(arguments)
        return subprocess.CompletedProcess(command, code, stdout, stderr)

    def of(self, name_part: str) -> FakeJob:
        """The latest job whose name contains ``name_part``."""
        return [job for job in self.jobs.values() if name_part in job.name][-1]

    def begin(self, job: FakeJob, nodes: str = "n[1-2]") -> None:
        job.state, job.reason, job.nodes = "RUNNING", "None", nodes

    def forget(self, job: FakeJob) -> None:
        del self.jobs[job.id]

    # --- commands

    def _sbatch(self, arguments: list[str]) -> tuple[int, str, str]:
        is_refused = self.refused is None or any(each.startswith(self.refused) for each in arguments)
        if self.refusal is not None and is_refused:
            return 1, "", self.refusal
        if "--test-only" in arguments:
            return 0, "", "sbatch: Job 1 to start at once\n"
        options = dict(each[2:].partition("=")[::2] for each in arguments if each.startswith("--"))
        job = FakeJob(max(self.jobs, default=0) + 1, options["job-name"], options, Path(arguments[-1]))
        self.jobs[job.id] = job
        if self.loses_answer:
            return 1, "", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"
        return 0, f"{job.id}\n", ""

    def _squeue(self, _: list[str]) -> tuple[int, str, str]:
        lines = (
            f"{job.id}|{job.name}|{job.state}|{job.nodes}|{job.reason}|{job.comment}\n" for job in self.jobs.values()
        )
        return 0, "".join(lines), ""

    def _scancel(self, arguments: list[str]) -> tuple[int, str, str]:
        for each in arguments:
            job = self.jobs.get(int(each)) if each.isdecimal() else None
            if job is not None and job.state in ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED"):
                job.state, job.reason = "CANCELLED", "None"
        return 0, "", ""

    def _scontrol(self, arguments: list[str]) -> tuple[int, str, str]:
        self.updated.append(arguments[1:])
        if "StartTime=now" in arguments:
            self.started += [int(each.removeprefix("JobId=")) for each in arguments if each.startswith("JobId=")]
        return 0, "", ""

    def _sinfo(self, arguments: list[str]) -> tuple[int, str, str]:
        words = " ".join(arguments)
        if "--all" in words and "--partition=" in words:
            return 1, "", "sinfo: error: Conflicting options, -a and -p, specified. Please choose one or the other.\n"
        return 0, self.unusable if "--states=" in words else self.gres, ""
