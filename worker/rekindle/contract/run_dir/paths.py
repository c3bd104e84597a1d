"""Every path of a run directory, which is the interface between a job's processes and its whole history."""

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle.contract.job_options import MAX_RANKS
from rekindle.contract.safe_open import list_numbers

MAX_ATTEMPT = 1 << 16  # the greatest number that an attempt may have: a job that fails every minute has it in six weeks
STREAMS = ("stdout", "stderr")

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # whoever uses it checks that it owns the directory in it


def path_digest(path: Path) -> str:
    """Digest that distinguishes directories of the same name, in the names of what belongs to them elsewhere."""
    return hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:12]


class _Child:
    """A file or directory of a fixed name below the ``root`` of its owner."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, _: Any = None) -> Path:
        path: Path = owner.root / self._name
        return path


@dataclass(frozen=True, slots=True)
class RankDir:
    """The files of one rank in one attempt, written by that rank only, never by a later attempt."""

    root: Path

    status = _Child("status.json")  # ``RankStatus`` as JSON, replaced whole, not fsynced: where the rank is
    done = _Child("done.json")  # ``RankDone`` as JSON: the script ended as it should; beats any exit code
    error = _Child("error.json")  # ``RankError`` as JSON: the exception that ended the script
    collectives = _Child("collectives.json")  # latest entries of torch's flight recorder when the script failed
    metrics = _Child("metrics.jsonl")  # one ``MetricPoint`` a line
    digests = _Child("digests.jsonl")  # ``DigestNames`` and ``StepDigest``, one a line: what the training was, in bits
    steps = _Child("steps.json")  # ``StepSamples`` as JSON, replaced whole, not fsynced: what a step's time is spent on
    layers = _Child("layers.json")  # ``StepRecord`` as JSON: what the layers have computed in a step that was recorded
    stacks = _Child("stacks.log")  # stacks of all threads, appended by faulthandler at every ``STACK_SIGNAL``
    chaos = _Child("chaos")  # the ``Fault`` that the rank injects into itself at the next ``CHAOS_SIGNAL``
    files = _Child("files.jsonl")  # one ``FileRecord`` a line: where the script writes, which checkpoints it loads
    debug_socket = _Child("debug.sock")  # Unix socket of torch's debug server in the rank: flight recorder and more
    pdb_socket = _Child("pdb.sock")  # Unix socket of the debugger that a replay opens in the rank

    def log(self, stream: str) -> Path:
        """File of raw output bytes; ``stream`` is ``stdout`` or ``stderr``."""
        if stream not in STREAMS:
            raise ValueError(f"stream must be 'stdout' or 'stderr', not {stream!r}")
        return self.root / f"{stream}.log"


@dataclass(frozen=True, slots=True)
class AttemptDir:
    """One launch of torchrun."""

    root: Path

    arguments = _Child("arguments.json")  # list of the script's arguments in this attempt; written by the keeper
    agent_log = _Child("agent.log")  # output of the torchrun agent, and of a rank before it has a log of its own
    usage = _Child("usage.jsonl")  # one ``UsageSample`` a line, of bounded size; written by the keeper, not fsynced
    log_times = _Child("log_times.jsonl")  # one ``LogSizes`` a line, of bounded size; by the keeper, not fsynced
    scalars = _Child("scalars.jsonl")  # ``MetricPoint``s: what the script wrote for TensorBoard, copied by the keeper
    printed = _Child("printed.jsonl")  # ``MetricPoint``s with their log lines: what the ranks print, read by the keeper
    ranks = _Child("ranks")

    def agent_log_of(self, node: int | None) -> Path:
        """The agent's log of one node of a cluster; node 0 has that of a job on one machine (``node`` None)."""
        return self.agent_log if not node else self.root / f"agent-{node}.log"

    def log_times_of(self, node: int | None) -> Path:
        """The times of the logs of one node's ranks, written by its keeper; ``node`` as for ``agent_log_of``."""
        return self.log_times if not node else self.root / f"log_times-{node}.jsonl"

    def rank(self, rank: int) -> RankDir:
        return RankDir(self.ranks / str(rank))

    def rank_numbers(self) -> list[int]:
        """The ranks that have a directory here, ascending."""
        return list_numbers(self.ranks, MAX_RANKS)


@dataclass(frozen=True, slots=True)
class LaunchDir:
    """One launch of the keepers of a job on a cluster: what its server, its coordinator and its nodes exchange."""

    root: Path

    environment = _Child("environment.json")  # variables of every keeper, by name; written by the server
    script = _Child("script.sh")  # what Slurm starts on the first node; written by the server
    slurm_log = _Child("slurm.log")  # output of the coordinator, with that of ``srun`` and the nodes' keepers
    leader = _Child("leader.json")  # ``Coordinator`` as JSON, by itself: where it listens, and the secret
    beat = _Child("beat.json")  # ``CoordinatorBeat`` as JSON, by the coordinator, every few seconds while it lives

    def proof(self, host: str) -> Path:
        """File ``{"number": …}``, counted up every few seconds by a node's keeper: are its writes seen elsewhere?"""
        return self.root / f"node-{host}.json"


@dataclass(frozen=True, slots=True)
class RunDir:
    """One job, from its first launch to its deletion."""

    root: Path

    @property
    def job_id(self) -> str:
        """The job's id, which is the name of the directory."""
        return self.root.name

    spec = _Child("spec.json")  # ``JobSpec`` as JSON, written once at submit by the server
    environment = _Child("environment.json")  # values of ``JobSpec.env``, which are stored nowhere else; by the server
    tmp = _Child("tmp")  # /tmp of a job in a sandbox; emptied when the job ends
    intent = _Child("intent.json")  # ``RunIntent`` as JSON: what the server requests of this job now
    journal = _Child("journal.jsonl")  # the keeper's journal, one record a line: the truth about attempts
    keeper_lock = _Child("keeper.lock")  # held (``ExclusiveLock``) by the one live keeper of this run
    keeper_log = _Child("keeper.log")
    control = _Child("control.fifo")  # FIFO: ranks, agent and server send the keeper a ``ControlMessage``
    requests = _Child("requests.jsonl")  # ``ControlMessage``s of the server for keepers on other machines
    fence = _Child("fence.json")  # ``{"generation": …}``: the only generation that may commit a snapshot now
    code = _Child("code")  # the copy of the user's code made at submit: working directory of every rank
    replay_hook = _Child("replay_hook.py")  # of a replay: functions that it calls; written once by the server
    code_manifest = _Child("code.json")  # hashes of the code as it was submitted; written once by the server
    observed = _Child("observed.json")  # ``Observations`` as JSON, by the keeper: the script's own checkpoints
    surroundings = _Child("surroundings.json")  # interpreter, packages, machine of the latest run, by its keeper
    pace = _Child(
        "pace.json"
    )  # how fast the job steps, by which the next attempt, too, recognizes a hang; the keeper's
    snapshots = _Child("snapshots")
    memory_void = _Child(
        "memory.json"
    )  # ``{"attempt": …}``: up to it, copies in memory are void; by a cluster's keeper
    pins = _Child("pins.json")  # written by the server: the snapshots that are never deleted to make room

    @property
    def memory(self) -> Path:
        """Copies of snapshots in shared memory; missing before the first one. Removed when the job ends."""
        return _SHARED_MEMORY / f"rekindle-{self.root.name}-{path_digest(self.root)}"

    @property
    def private_tmp(self) -> Path:
        """TMPDIR of a job without a sandbox. Its path is short, since a socket's has up to 107 bytes."""
        return Path(tempfile.gettempdir()) / f"rekindle-{self.root.name}-{path_digest(self.root)}"

    launches = _Child("launches")  # of a job on a cluster
    standby = _Child(
        "standby"
    )  # of the ranks that wait for the next attempt, emptied before each; torchrun's files, too
    attempts = _Child("attempts")

    def control_of(self, node: int | None) -> Path:
        """The FIFO of one node's keeper: a FIFO does not reach across machines. None: of a job on one machine."""
        return self.control if node is None else self.root / f"control-{node}"

    def standby_rank(self, rank: int) -> Path:
        """``HeldRank`` as JSON, by the rank itself, once it waits at its first effect."""
        return self.standby / f"{rank}.json"

    def launch(self, number: int) -> LaunchDir:
        return LaunchDir(self.launches / str(number))

    def attempt(self, number: int) -> AttemptDir:
        return AttemptDir(self.attempts / str(number))
