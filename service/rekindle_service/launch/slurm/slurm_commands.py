"""Slurm's commands, each with a time limit, what ``squeue`` prints as values, and what their errors mean."""

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

FORMAT = "%i|%j|%T|%N|%r|%k"
"""Id, name, state, nodes, reason, comment."""

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
    """One line of ``squeue``."""

    id: int
    name: str
    state: str
    hosts: tuple[str, ...] = ()
    reason: str = ""
    comment: str = ""

    @property
    def stage(self) -> Stage:
        return _STAGES.get(self.state, Stage.RUNNING)


def job_name(job_id: str, launch: int) -> str:
    """Name by which the Slurm job of a launch is found, whatever became of the server that has made it."""
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
    identifier, name, state, nodes, reason, comment = fields
    reason = "" if reason in ("None", "(null)") else reason.replace("_", " ")
    return SlurmJob(int(identifier), name, state, expand_hosts(nodes), reason, comment)


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


COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "srun", "sinfo")
_SECONDS = 30.0  # for one command; each gives up by itself after MessageTimeout, 10 s by default
_MAX_SENTENCE = 500  # characters
_PREFIX = re.compile(
    r"^((sbatch|squeue|scancel|scontrol|sinfo|srun|slurm\w*): )?((error|fatal): )?"
    r"((allocation failure|Batch job submission failed|slurm_load_jobs error): )?"
)
_UNREACHABLE = re.compile(
    r"unable to contact slurm controller|socket timed out|zero bytes were transmitted|communication connection failure"
    r"|connection refused|standby mode|configuration source|authentication (credential|error)|munge|timed out"
    r"|not responding|no route to host|slurm_load",
    re.IGNORECASE,
)
_TEMPORARY = re.compile(
    r"job submit limit|accounting/QOS policy|temporarily unable|resource temporarily unavailable|job count|try again",
    re.IGNORECASE,
)
_KEPT = ("SLURM_CONF", "SLURM_JWT")
_OWN_VARIABLES = ("SLURM_", "SBATCH_", "SQUEUE_", "SCANCEL_", "SINFO_", "SALLOC_", "SRUN_")

Runner = Callable[[Sequence[str], Mapping[str, str]], "subprocess.CompletedProcess[str]"]


class SlurmError(Exception):
    """A command failed; the message is Slurm's own sentence."""


class UnreachableError(SlurmError):
    """The controller does not answer: nothing is known, and nothing was necessarily done."""


class RefusedError(SlurmError):
    """Slurm does not take the job. ``temporary``: it may later."""

    def __init__(self, sentence: str, *, temporary: bool = False) -> None:
        super().__init__(sentence)
        self.temporary = temporary


def missing_commands() -> list[str]:
    """Commands of Slurm that this machine does not have on its PATH."""
    return [name for name in COMMANDS if shutil.which(name) is None]


def slurm_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """For the commands: no option may come from a variable, such as SBATCH_PARTITION, or from a surrounding job."""
    kept = {name: value for name, value in environment.items() if name in _KEPT or not name.startswith(_OWN_VARIABLES)}
    return {**kept, "LC_ALL": "C"}


def run_command(command: Sequence[str], environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """Raises OSError and subprocess.TimeoutExpired."""
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=dict(environment),
        timeout=_SECONDS,
        check=False,
    )


@dataclass(frozen=True, slots=True)
class SlurmCommands:
    """Every method raises UnreachableError where nobody answers. ``run`` is for tests."""

    run: Runner = run_command

    def submit(self, options: Sequence[str], script: Path) -> int:
        """The id of the new Slurm job. Raises RefusedError, too."""
        answer = self._sbatch(["--parsable", *options, str(script)])
        identifier = answer.stdout.strip().partition(";")[0]
        if not identifier.isdecimal():
            raise UnreachableError(f"sbatch printed {answer.stdout[:100]!r} where the id of the job was expected")
        return int(identifier)

    def test(self, options: Sequence[str], script: Path) -> None:
        """Have Slurm check what ``submit`` would request. Raises RefusedError, too.

        Slurm also refuses here what it would let wait for nodes that are down or drained: that is temporary.
        """
        try:
            self._sbatch(["--test-only", *options, str(script)])
        except RefusedError as error:
            partition = next((each for each in options if each.startswith("--partition=")), "--all")
            unusable = ["sinfo", "--noheader", "--format=%N", "--states=down,drain,fail,maint", partition]
            if "not available" in str(error) and self._run(unusable).stdout.strip():
                raise RefusedError(str(error), temporary=True) from error
            raise

    def list_jobs(self) -> dict[str, SlurmJob]:
        """All of this user's Slurm jobs that rekindle has made, by name; those that ended a while ago are forgotten."""
        user = pwd.getpwuid(os.geteuid()).pw_name
        answer = self._run(["squeue", "--noheader", "--all", f"--user={user}", "--states=all", f"--format={FORMAT}"])
        if answer.returncode != 0:
            raise UnreachableError(sentence_of(answer.stderr) or "squeue failed without a word")
        try:
            return parse_listing(answer.stdout)
        except ListingError as error:
            raise UnreachableError(f"squeue printed what cannot be read: {error}") from error

    def cancel(self, job_ids: Iterable[int]) -> None:
        """SIGTERM, after KillWait SIGKILL. Jobs that have ended are not an error."""
        self._succeed(["scancel", "--quiet", *map(str, job_ids)])

    def start_now(self, job_id: int) -> None:
        """End the wait for which Slurm holds a job that it has queued again. Raises RefusedError, too."""
        self._succeed(["scontrol", "update", f"JobId={job_id}", "StartTime=now"])

    def exclude(self, job_id: int, hosts: Iterable[str]) -> None:
        """Change the nodes that a waiting job must not get. Raises RefusedError, too."""
        self._succeed(["scontrol", "update", f"JobId={job_id}", f"ExcNodeList={','.join(hosts)}"])

    def has_gpus(self, partition: str | None) -> bool:
        """Whether any node of the partition, or of all, has GPUs that Slurm gives out."""
        chosen = "--all" if partition is None else f"--partition={partition}"  # sinfo takes one of the two
        answer = self._run(["sinfo", "--noheader", "--format=%G", chosen])
        return any(line.strip().startswith("gpu") or ",gpu" in line for line in answer.stdout.splitlines())

    def show(self, *arguments: str) -> str:
        """What ``scontrol show`` prints."""
        return self._succeed(["scontrol", "show", *arguments])

    def _sbatch(self, arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        answer = self._run(["sbatch", *arguments])
        if answer.returncode != 0:
            raise _error_of(answer.stderr)
        return answer

    def _succeed(self, command: Sequence[str]) -> str:
        answer = self._run(command)
        if answer.returncode != 0:
            raise _error_of(answer.stderr)
        return answer.stdout

    def _run(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        try:
            return self.run(command, slurm_environment(os.environ))
        except subprocess.TimeoutExpired as error:
            raise UnreachableError(f"{command[0]} has not answered for {_SECONDS:.0f} s") from error
        except OSError as error:
            raise UnreachableError(f"{command[0]} cannot be started: {error.strerror}") from error


def _error_of(stderr: str) -> SlurmError:
    sentence = sentence_of(stderr) or "Slurm gave no reason"
    if _UNREACHABLE.search(stderr):
        return UnreachableError(sentence)
    return RefusedError(sentence, temporary=_TEMPORARY.search(stderr) is not None)


def sentence_of(stderr: str) -> str:
    """The last line that Slurm's user can act on, without the name of the command."""
    lines = [_PREFIX.sub("", line).strip() for line in stderr.splitlines()]
    named = [line for line in lines if line and not line.startswith("Try ")]
    return "; ".join(dict.fromkeys(named))[:_MAX_SENTENCE]
