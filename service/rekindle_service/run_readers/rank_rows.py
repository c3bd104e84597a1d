"""One row per rank of an attempt: what the rank reports, corrected by what the keeper and the kernel know."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rekindle.contract.field_texts import Described
from rekindle.contract.job import DRAINED_EXIT_CODE
from rekindle.contract.locks import lock_holder
from rekindle.contract.processes import ProcessIdentity, boot_id, pids_in_namespace, process_state
from rekindle.contract.run_dir.attempt_history import AttemptInfo, AttemptSummary
from rekindle.contract.run_dir.journal import RankExited, RankProcess
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import MAX_ATTEMPT, STREAMS, AttemptDir, RankDir, RunDir
from rekindle.contract.run_dir.rank_records import RankDone, RankError, RankState, RankStatus
from rekindle.contract.safe_open import list_numbers, open_beneath, stat_beneath
from rekindle_service.run_readers.log_files import last_line, open_or_empty, size_of

RANK_ZERO = 0  # the rank that reports metrics, progress and snapshots of the whole job

_AS_REPORTED = (
    "local_rank", "host", "pid", "phase", "epoch", "step", "steps", "resumed_from_step", "snapshot_step", "notice",
)  # fmt: skip
_STACK_POLL = 0.05  # seconds
_STACK_SILENCE = 0.15  # seconds without a new byte after which a stack counts as complete
_MAX_STACK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow(Described):
    """A rank as it is shown. What nobody has reported is None."""

    rank: int
    """Global rank."""
    local_rank: int | None
    """Rank on its machine."""
    host: str | None
    """Name of its machine."""
    pid: int | None
    """Id of its process."""
    state: RankState
    """`starting`, `running`, `done`, `drained`, `failed` or `killed` (by the keeper, after another rank had failed)."""
    exit_code: int | None
    """Exit code of its process; null while it runs, and where a signal ended it."""
    signal: str | None
    """Signal that ended its process, such as `SIGKILL`."""
    phase: str | None
    """What it does, as the script reports it, such as `train` or `snapshot`."""
    epoch: int | None
    """Number of finished epochs."""
    step: int | None
    """Number of completed optimizer steps."""
    steps: int | None
    """Expected number of steps."""
    steps_per_second: float | None
    """Current speed in optimizer steps per second."""
    resumed_from_step: int | None
    """Step of the snapshot from which it resumed."""
    snapshot_step: int | None
    """Step of the latest snapshot that was committed in this attempt."""
    notice: str | None
    """Something that a person should know, such as a skipped snapshot."""
    device: str | None
    """Slots that it holds."""
    process_state: str | None
    """The kernel's letter for the state of its process (R, S, D, T …); null where there is none."""
    heartbeat_age: float | None
    """Seconds since it last reported anything."""
    straggler: float | None
    """Fraction of the time in which the other ranks wait for this one, 0 to 1; null where it is small."""
    last_line: str | None
    """Last line of its output."""


def attempt_numbers(run_dir: RunDir) -> list[int]:
    """The attempts that have a directory, ascending."""
    return list_numbers(run_dir.attempts, MAX_ATTEMPT + 1)


def rank_numbers(run_dir: RunDir, attempt: AttemptSummary) -> list[int]:
    """The ranks of an attempt, ascending: those that it was launched with and those that have a directory."""
    return sorted({*run_dir.attempt(attempt.number).rank_numbers(), *range(attempt.world_size)})


def read_ranks(run_dir: RunDir, attempt: AttemptInfo, *, over: bool, remote: bool = False) -> list[RankRow]:
    """Every rank of the attempt. ``over``: none of its processes runs any more, whatever a rank last wrote.

    ``remote``: they run on other machines, so that the journal alone says whether one has ended.
    """
    attempt_dir = run_dir.attempt(attempt.number)
    keeper = None if over or remote or attempt.ended_at is not None else lock_holder(run_dir.keeper_lock)
    pids = None if keeper is None else pids_in_namespace(keeper)
    numbers = rank_numbers(run_dir, attempt)
    return [_read_rank(run_dir.root, attempt_dir, attempt, rank, over, remote, pids) for rank in numbers]


def read_rank_zero_status(run_dir: RunDir, attempt: int) -> RankStatus | None:
    return read_record(run_dir.attempt(attempt).rank(RANK_ZERO).status, RankStatus, run_dir.root)


def _read_rank(
    root: Path,
    attempt_dir: AttemptDir,
    attempt: AttemptInfo,
    rank: int,
    over: bool,
    remote: bool,
    pids: Mapping[int, int] | None,
) -> RankRow:
    """``pids``: those of this machine by those of the job's sandbox, where it has one."""
    rank_dir = attempt_dir.rank(rank)
    status, done = read_record(rank_dir.status, RankStatus, root), read_record(rank_dir.done, RankDone, root)
    error = read_record(rank_dir.error, RankError, root)
    process, exited = attempt.processes.get(rank), attempt.exits.get(rank)
    known = {name: getattr(status or process, name, None) for name in _AS_REPORTED}  # at first what its keeper found
    if pids is not None and known["pid"] is not None:
        known["pid"] = pids.get(known["pid"])
    alive = not over and attempt.ended_at is None
    if alive and not remote:
        alive = _is_alive(status or process, known["pid"], attempt.boot_id)
    exit_code = None if exited is None else exited.exit_code
    return RankRow(
        rank=rank,
        state=_state(status, done, exited, failed=error is not None or not alive),
        exit_code=error.exit_code if exit_code is None and error is not None else exit_code,
        signal=None if exited is None else exited.signal,
        steps_per_second=status.steps_per_second if status and alive else None,
        device=status.device if status else _devices_of(rank, attempt),
        process_state=process_state(known["pid"]) if alive and not remote and known["pid"] is not None else None,
        heartbeat_age=_heartbeat_age(root, rank_dir, status) if alive else None,
        straggler=attempt.stragglers.get(rank) if alive else None,
        last_line=_last_line(root, rank_dir),
        **known,
    )


def _devices_of(rank: int, attempt: AttemptInfo) -> str | None:
    """The slots of one rank."""
    each = len(attempt.devices) // max(1, attempt.world_size)
    return ", ".join(attempt.devices[rank * each : (rank + 1) * each]) or None


_ENDED: dict[int | None, RankState] = {0: RankState.DONE, DRAINED_EXIT_CODE: RankState.DRAINED}


def _state(status: RankStatus | None, done: RankDone | None, exited: RankExited | None, *, failed: bool) -> RankState:
    """Where a rank is. Its own done marker beats any exit code; a dead process is never shown as running."""
    if done is not None:
        return RankState.DRAINED if done.drained else RankState.DONE
    if exited is not None:
        if exited.killed:
            return RankState.KILLED
        return _ENDED.get(exited.exit_code, RankState.FAILED)
    if failed:
        return RankState.FAILED
    return RankState.STARTING if status is None else status.state


def _is_alive(process: RankStatus | RankProcess | None, pid: int | None, boot: str | None) -> bool:
    """Whether the rank's process, which is ``pid`` here, runs; one that nobody has reported yet is on its way."""
    if process is None or pid is None:
        return process is None
    return ProcessIdentity(pid, process.start_time, boot or boot_id()).alive()


def _heartbeat_age(root: Path, rank_dir: RankDir, status: RankStatus | None) -> float | None:
    """Seconds since the rank last wrote a status or a byte of output."""
    logs = [stat_beneath(root, rank_dir.log(stream)) for stream in STREAMS]
    signs = [log.st_mtime for log in logs if log is not None]
    signs += [status.updated_at] if status is not None and status.updated_at > 0 else []
    return max(time.time() - max(signs), 0.0) if signs else None


def _last_line(root: Path, rank_dir: RankDir) -> str | None:
    """The last line of standard output, or where there is none, of standard error."""
    for stream in STREAMS:
        with open_or_empty(root, rank_dir.log(stream)) as file:
            line = last_line(file)
        if line is not None:
            return line
    return None


def wait_for_stack(root: Path, path: Path, offset: int, timeout: float) -> str | None:
    """What the rank writes after ``offset`` within ``timeout`` seconds; None where it writes nothing.

    A stack comes in many small writes with no end mark: it is complete when nothing more has come for a moment.
    """
    if (file := open_beneath(root, path)) is None:
        return None
    with file:
        size = _settled_size(file, offset, time.monotonic() + timeout)
        data = os.pread(file.fileno(), min(size - offset, _MAX_STACK_BYTES), offset)
    return data.decode(errors="replace") or None


def _settled_size(file: BinaryIO, offset: int, deadline: float) -> int:
    size, changed_at = offset, time.monotonic()
    while (now := time.monotonic()) < deadline:
        latest = size_of(file)
        if latest != size:
            size, changed_at = latest, now
        elif size > offset and now - changed_at >= _STACK_SILENCE:
            break
        time.sleep(_STACK_POLL)
    return size
