"""Slurm's commands, each with a time limit, and what their errors mean."""

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rekindle_service.launchers.slurm.queue_listing import FORMAT, ListingError, SlurmJob, parse_listing

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
    """Those that this machine does not have on its PATH."""
    return [name for name in COMMANDS if shutil.which(name) is None]


def slurm_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """For the commands: no option may come from a variable, such as SBATCH_PARTITION, or from a surrounding job."""
    kept = {name: value for name, value in environment.items() if name in _KEPT or not name.startswith(_OWN_VARIABLES)}
    return {**kept, "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}


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
