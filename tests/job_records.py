"""Records of a job in its run directory as its keeper and ranks leave them, for tests without processes."""

from typing import Any

from rekindle.contract.files import write_json
from rekindle.contract.processes import ProcessIdentity
from rekindle.contract.run_dir.journal import Journal, RecordType
from rekindle.contract.run_dir.paths import AttemptDir, RankDir, RunDir
from rekindle.contract.run_dir.rank_records import RankState, RankStatus


def record_keeper(run_dir: RunDir) -> None:
    """Record this very process as the keeper."""
    identity = ProcessIdentity.own()
    keeper = {"pid": identity.pid, "start_time": identity.start_time, "boot_id": identity.boot_id}
    Journal(run_dir.journal).write(RecordType.KEEPER_STARTED, run=1, keeper=keeper)


def record_attempt(run_dir: RunDir, number: int = 1, world_size: int = 1, **fields: Any) -> AttemptDir:
    """Record the start of an attempt, by default on CPU slots, and make the directories of its ranks."""
    devices = [f"cpu:{rank}" for rank in range(world_size)]
    started = {"run": 1, "world_size": world_size, "devices": devices}
    Journal(run_dir.journal).write(RecordType.ATTEMPT_STARTED, attempt=number, **started | fields)
    attempt = run_dir.attempt(number)
    for rank in range(world_size):
        attempt.rank(rank).root.mkdir(parents=True, exist_ok=True)
    return attempt


def record_status(rank_dir: RankDir, rank: int, state: RankState = RankState.RUNNING, **fields: Any) -> None:
    """Write the status of one of two ranks, whose process is this very one."""
    identity = ProcessIdentity.own()
    device = fields.pop("device", f"cpu:{rank}")
    status = RankStatus(rank, rank, 2, "box", identity.pid, identity.start_time, device, state)
    write_json(rank_dir.status, status.to_json() | fields, durable=False)
