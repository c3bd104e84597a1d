"""Every path of a run directory, which is the interface between a job's processes and its whole history."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.safe_open import list_numbers

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # whoever uses it checks that it owns the directory in it


@dataclass(frozen=True, slots=True)
class RankDir:
    """The files of one rank in one attempt, written by that rank only, never by a later attempt."""

    root: Path

    @property
    def status(self) -> Path:
        """``RankStatus`` as JSON, replaced whole, not fsynced: where the rank is."""
        return self.root / "status.json"

    @property
    def done(self) -> Path:
        """``RankDone`` as JSON: the script ended as it should. Beats any exit code."""
        return self.root / "done.json"

    @property
    def error(self) -> Path:
        """``RankError`` as JSON: the exception that ended the script."""
        return self.root / "error.json"

    @property
    def metrics(self) -> Path:
        """One ``MetricPoint`` a line."""
        return self.root / "metrics.jsonl"

    @property
    def stacks(self) -> Path:
        """Python stacks of all threads, appended by faulthandler whenever ``STACK_SIGNAL`` arrives."""
        return self.root / "stacks.log"

    @property
    def chaos(self) -> Path:
        """The ``Fault`` that the rank injects into itself at the next ``CHAOS_SIGNAL``."""
        return self.root / "chaos"

    @property
    def debug_socket(self) -> Path:
        """Unix socket of torch's debug server in the rank: flight recorder and more."""
        return self.root / "debug.sock"

    def log(self, stream: str) -> Path:
        """Raw output bytes; ``stream`` is ``stdout`` or ``stderr``."""
        if stream not in ("stdout", "stderr"):
            raise ValueError(f"stream must be 'stdout' or 'stderr', not {stream!r}")
        return self.root / f"{stream}.log"


@dataclass(frozen=True, slots=True)
class AttemptDir:
    """One launch of torchrun."""

    root: Path

    @property
    def agent_log(self) -> Path:
        """Output of the torchrun agent, and of a rank before it has a log of its own."""
        return self.root / "agent.log"

    @property
    def usage(self) -> Path:
        """One ``UsageSample`` a line, of bounded size; written by the keeper, not fsynced."""
        return self.root / "usage.jsonl"

    @property
    def scalars(self) -> Path:
        """One ``MetricPoint`` a line: what the script wrote for TensorBoard, copied by the keeper."""
        return self.root / "scalars.jsonl"

    @property
    def ranks(self) -> Path:
        return self.root / "ranks"

    def rank(self, rank: int) -> RankDir:
        return RankDir(self.ranks / str(rank))

    def rank_numbers(self) -> list[int]:
        """The ranks that have a directory here, ascending."""
        return list_numbers(self.ranks, 1 << 20)


@dataclass(frozen=True, slots=True)
class RunDir:
    """One job, from its first launch to its deletion."""

    root: Path

    @property
    def job_id(self) -> str:
        """The directory is named by the job's id."""
        return self.root.name

    @property
    def spec(self) -> Path:
        """``JobSpec`` as JSON, written once at submit by the server."""
        return self.root / "spec.json"

    @property
    def intent(self) -> Path:
        """``RunIntent`` as JSON: what the server requests of this job now."""
        return self.root / "intent.json"

    @property
    def journal(self) -> Path:
        """The keeper's journal, one record a line: the truth about attempts."""
        return self.root / "journal.jsonl"

    @property
    def keeper_lock(self) -> Path:
        """Held (``ExclusiveLock``) by the one live keeper of this run."""
        return self.root / "keeper.lock"

    @property
    def keeper_log(self) -> Path:
        return self.root / "keeper.log"

    @property
    def control(self) -> Path:
        """FIFO through which ranks, the agent and the server send the keeper a ``ControlMessage``."""
        return self.root / "control.fifo"

    @property
    def fence(self) -> Path:
        """``{"generation": …}``: the only generation that may commit a snapshot now."""
        return self.root / "fence.json"

    @property
    def code(self) -> Path:
        """The copy of the user's code made at submit: working directory of every rank."""
        return self.root / "code"

    @property
    def code_manifest(self) -> Path:
        """Hashes of the code as it was submitted; written once by the server."""
        return self.root / "code.json"

    @property
    def surroundings(self) -> Path:
        """Interpreter, packages and machine of the latest run; written by its keeper."""
        return self.root / "surroundings.json"

    @property
    def snapshots(self) -> Path:
        return self.root / "snapshots"

    @property
    def pins(self) -> Path:
        """``Pins`` as JSON, written by the server: snapshots that are never deleted to make room for newer ones."""
        return self.root / "pins.json"

    @property
    def memory(self) -> Path:
        """Copies of snapshots in shared memory; absent before the first one. Removed when the job ends."""
        digest = hashlib.sha256(str(self.root.absolute()).encode()).hexdigest()[:12]
        return _SHARED_MEMORY / f"rekindle-{self.root.name}-{digest}"

    @property
    def attempts(self) -> Path:
        return self.root / "attempts"

    def attempt(self, number: int) -> AttemptDir:
        return AttemptDir(self.attempts / str(number))
