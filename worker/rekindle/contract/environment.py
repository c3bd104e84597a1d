"""Every environment variable that crosses a process boundary, and what must not be inherited."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from rekindle.contract.connection_owner import NodePeers
from rekindle.contract.job import JobSpec
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import AttemptDir, RankDir, RunDir

JOB_ID = "REKINDLE_JOB_ID"  # id of the job
RUN_DIR = "REKINDLE_RUN_DIR"  # directory with all that the job has written
SNAPSHOT_DIR = "REKINDLE_SNAPSHOT_DIR"  # directory to save in and to load from, the same in every attempt
ATTEMPT = "REKINDLE_ATTEMPT"  # number of the attempt, 1 at first
GENERATION = "REKINDLE_GENERATION"  # of the attempt: a snapshot is committed only in the latest one
SNAPSHOT_POLICY = "REKINDLE_SNAPSHOT_POLICY"  # when `rekindle.Run` takes snapshots, as JSON; the policy of the job
DEVICES_PER_RANK = "REKINDLE_DEVICES_PER_RANK"  # number of devices of each rank
SLOTS = "REKINDLE_SLOTS"  # all slots of the attempt on this machine, those of local rank 0 first
AFFINITY = "REKINDLE_AFFINITY"  # of the keeper and its ranks: an ``Affinity``, and how many CPU slots there are
GPU_SHARE = "REKINDLE_GPU_SHARE"  # part of the memory of its GPUs that a script should use, if it shares them
NODE = "REKINDLE_NODE"  # number of the machine in the attempt, from 0, of a job on a cluster
NODE_PEERS = "REKINDLE_NODE_PEERS"  # the machines from which ranks accept connections, of a job on several machines
HOST = "REKINDLE_HOST"  # name of the machine in the cluster, of a job on a cluster
NODE_PLAN = "REKINDLE_NODE_PLAN"  # of an agent on a cluster only: its ``NodePlan`` as JSON
STANDBY = "REKINDLE_STANDBY"  # of a rank whose attempt has not begun: the pipes of all, by local rank
USED_CUDA = "REKINDLE_USED_CUDA"  # of a rank that has replaced itself: the module for which
FAILURE_STATS = "REKINDLE_PAST_FAILURES"  # number of failures so far, and seconds that the ranks have run
PRIVATE_TMP = "REKINDLE_KEEPER_TMP"  # of the keeper only: the directory that it makes, and removes at its end
ENV_FILES = "REKINDLE_KEEPER_ENV_FILES"  # of the keeper only: JSON, files with the values of variables, by name
WANDB_RUN_ID = "WANDB_RUN_ID"  # id of the job, followed by the rank on all but rank 0, unless the job sets it
WANDB_RESUME = "WANDB_RESUME"  # `allow`: the run of Weights & Biases is the same in every attempt

SPARE_ARGUMENT = "--spare="
"""On the command line of a spare keeper: the descriptor of its socket, then ``SPARE_PADDING``."""
SPARE_PADDING = " " * 4096
"""After ``SPARE_ARGUMENT`` and in ``RUN_DIR`` of a spare keeper: room for the path of a run directory."""

CLEANED_PREFIXES = ("PET_", "TORCHELASTIC_", "REKINDLE_", "GROUP_", "ROLE_")
CLEANED = {
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV",
    WANDB_RUN_ID, WANDB_RESUME, "MLFLOW_RUN_ID",  # of whatever runs in the shell that the server was started from
}  # fmt: skip


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Copy ``environment`` without what another torchrun, another job or the server (token, settings) left in it."""
    return {
        name: value
        for name, value in environment.items()
        if name not in CLEANED and not name.startswith(CLEANED_PREFIXES)
    }


@dataclass(frozen=True, slots=True)
class FailureStats:
    """Failures of all attempts that are over; ``seconds`` is how long their ranks have run, all attempts together."""

    count: int = 0
    seconds: float = 0.0

    def to_text(self) -> str:
        return f"{self.count} {self.seconds:.1f}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what ``to_text`` makes; any other text counts as no failure."""
        with suppress(ValueError):
            count, seconds = text.split()
            return cls(int(count), float(seconds))
        return cls()


_NONE_YET = FailureStats()

ARRAY_INDEX = "REKINDLE_ARRAY_INDEX"  # index of the job in its array, of the jobs of an array
EVENT = "REKINDLE_EVENT"  # type of the event, of a command that is notified
EVENT_ID = "REKINDLE_EVENT_ID"  # id of the event, likewise
EVENT_JSON = "REKINDLE_EVENT_JSON"  # the event as JSON, likewise

READ_LATE = frozenset({GENERATION, FAILURE_STATS})
"""Variables of an attempt that only ``RankEnv`` needs, which a rank in standby does not read before its attempt."""

SET_BY_REKINDLE = frozenset(
    {
        *(JOB_ID, RUN_DIR, SNAPSHOT_DIR, ATTEMPT, GENERATION, SNAPSHOT_POLICY, FAILURE_STATS),
        *(DEVICES_PER_RANK, SLOTS, AFFINITY, GPU_SHARE, NODE, NODE_PEERS, HOST, NODE_PLAN, STANDBY, USED_CUDA),
        *(PRIVATE_TMP, ENV_FILES),
        *(ARRAY_INDEX, EVENT, EVENT_ID, EVENT_JSON),
    }
)
"""What a process that rekindle has started may find in its environment, settings apart."""


@dataclass(frozen=True, slots=True)
class RankEnv:
    """What a rank knows about itself. torchrun sets the ranks and sizes, the keeper the rest.

    Without torchrun (``LaunchMode.PROCESS``, or plain ``python train.py``) the ranks default to a world of one. Outside
    rekindle ``job_id`` and ``run_dir`` are None.
    """

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    job_id: str | None
    attempt: int
    generation: str | None
    run_dir: RunDir | None
    snapshot_dir: Path | None
    snapshot_policy: str | None
    failures: FailureStats
    devices_per_rank: int = 1
    node: int | None = None  # number of the machine in the attempt; None where the job is not on a cluster
    host: str | None = None  # name of the machine in the cluster, likewise
    node_peers: NodePeers | None = None  # the machines of the attempt, where only these may connect to a rank
    group_rank: int = 0  # number of the torchrun agent that started this rank, one on each machine

    AUDIT_EVENT: ClassVar[str] = "rekindle.environment"

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self:
        """Read it from the ``environment``; a rank in standby then waits until it is that of its attempt."""
        sys.audit(cls.AUDIT_EVENT)
        run_dir = environment.get(RUN_DIR)
        snapshot_dir = environment.get(SNAPSHOT_DIR)
        return cls(
            rank=int(environment.get("RANK", "0")),
            local_rank=int(environment.get("LOCAL_RANK", "0")),
            world_size=int(environment.get("WORLD_SIZE", "1")),
            local_world_size=int(environment.get("LOCAL_WORLD_SIZE", environment.get("WORLD_SIZE", "1"))),
            job_id=environment.get(JOB_ID),
            attempt=int(environment.get(ATTEMPT, "0")),
            generation=environment.get(GENERATION),
            run_dir=None if run_dir is None else RunDir(Path(run_dir)),
            snapshot_dir=None if snapshot_dir is None else Path(snapshot_dir),
            snapshot_policy=environment.get(SNAPSHOT_POLICY),
            failures=FailureStats.from_text(environment.get(FAILURE_STATS, "")),
            devices_per_rank=int(environment.get(DEVICES_PER_RANK, "1")),
            node=_number(environment.get(NODE)),
            host=environment.get(HOST),
            node_peers=NodePeers.from_text(environment.get(NODE_PEERS, "")),
            group_rank=int(environment.get("GROUP_RANK", "0")),
        )

    @property
    def spec(self) -> JobSpec | None:
        """What was asked for at submit; None outside rekindle."""
        return None if self.run_dir is None else read_record(self.run_dir.spec, JobSpec)

    @property
    def attempt_dir(self) -> AttemptDir | None:
        return None if self.run_dir is None else self.run_dir.attempt(self.attempt)

    @property
    def rank_dir(self) -> RankDir | None:
        return None if self.attempt_dir is None else self.attempt_dir.rank(self.rank)


def attempt_environment(
    *,
    run_dir: RunDir,
    attempt: int,
    generation: str,
    snapshot_policy: str,
    failures: FailureStats = _NONE_YET,
    devices_per_rank: int = 1,
    slots: Sequence[str] = (),
) -> dict[str, str]:
    """What the keeper adds to the job's environment for one attempt."""
    return {
        JOB_ID: run_dir.job_id,
        RUN_DIR: str(run_dir.root),
        SNAPSHOT_DIR: str(run_dir.snapshots),
        ATTEMPT: str(attempt),
        GENERATION: generation,
        SNAPSHOT_POLICY: snapshot_policy,
        FAILURE_STATS: failures.to_text(),
        DEVICES_PER_RANK: str(devices_per_rank),
        SLOTS: ",".join(slots),
    }


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def tracker_environment(env: RankEnv, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that make W&B continue its run in every attempt; none where the job sets them in ``environment``.

    Each rank has a run of its own, should more than one begin one: two processes that write to the same mix it up.
    MLflow has nothing of the kind: it takes MLFLOW_RUN_ID for a run that exists, and refuses to begin any other.
    """
    if env.job_id is None or not environment.keys().isdisjoint({WANDB_RUN_ID, WANDB_RESUME}):
        return {}
    run_id = env.job_id if env.rank == 0 else f"{env.job_id}-{env.rank}"
    return {WANDB_RUN_ID: run_id, WANDB_RESUME: "allow"}
