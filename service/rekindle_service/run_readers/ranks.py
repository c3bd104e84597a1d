"""One row per rank of an attempt: what the rank says of itself, corrected by what the keeper and the kernel know."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from rekindle.contract.job import DRAINED_EXIT_CODE
from rekindle.contract.processes import ProcessIdentity, boot_id, process_state
from rekindle.contract.run_dir.journal import RecordType, read_journal
from rekindle.contract.run_dir.paths import AttemptDir, RankDir, RunDir
from rekindle.contract.run_dir.rank_records import RankDone, RankError, RankState, RankStatus
from rekindle_service.run_readers.logs import last_line
from rekindle_service.run_readers.safe_open import folder_names, is_regular, modified_at, open_regular, read_small

_STATUS = TypeAdapter(RankStatus)
_DONE = TypeAdapter(RankDone)
_ERROR = TypeAdapter(RankError)
_T = TypeVar("_T")
STREAMS = ("stdout", "stderr")


@dataclass(slots=True)
class AttemptFacts:
    """What the journal tells of one attempt."""

    number: int
    world_size: int = 0
    devices: list[str] = field(default_factory=list)
    processes: dict[int, dict[str, Any]] = field(default_factory=dict)  # rank → {rank, local_rank, pid, start_time}
    exits: dict[int, dict[str, Any]] = field(default_factory=dict)  # rank → {exit_code, signal, killed}
    stragglers: dict[int, float] = field(default_factory=dict)  # rank → share of the time that others wait for it
    boot_id: str | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class RankRow:
    """A rank as it is shown. Ages are in seconds; fields that nobody has told are None."""

    rank: int
    local_rank: int | None
    host: str | None
    pid: int | None
    state: RankState
    exit_code: int | None
    signal: str | None
    phase: str | None
    epoch: int | None
    step: int | None
    steps: int | None
    steps_per_second: float | None
    resumed_from_step: int | None
    snapshot_step: int | None
    notice: str | None
    device: str | None
    process_state: str | None  # the kernel's letter of a living process: R, S, D, T …
    heartbeat_age: float | None
    straggler: float | None  # share of the time that the other ranks wait for this one, where that is much
    last_line: str | None


def read_attempts(run_dir: RunDir) -> dict[int, AttemptFacts]:
    """The attempts of a run by number, ascending: those of the journal, and folders that it does not know."""
    attempts: dict[int, AttemptFacts] = {}
    boot: str | None = None
    records = read_journal(run_dir.journal) if is_regular(run_dir.journal) else iter(())
    for record in records:
        if record.type is RecordType.KEEPER_STARTED:
            boot = _boot_of(record.fields.get("keeper"))
            continue
        number = record.fields.get("attempt")
        if isinstance(number, int):
            facts = attempts.setdefault(number, AttemptFacts(number, boot_id=boot))
            _apply(facts, record.type, record.fields)
    for name in folder_names(run_dir.attempts):
        if name.isascii() and name.isdecimal() and len(name) < 10:
            attempts.setdefault(int(name), AttemptFacts(int(name)))
    return dict(sorted(attempts.items()))


def _apply(facts: AttemptFacts, kind: RecordType, fields: dict[str, Any]) -> None:
    match kind:
        case RecordType.ATTEMPT_STARTED:
            facts.world_size = int(fields.get("world_size") or 0)
            facts.devices = [str(device) for device in fields.get("devices") or []]
        case RecordType.RANKS_RUNNING:
            facts.processes = {int(entry["rank"]): entry for entry in fields.get("ranks") or []}
        case RecordType.RANK_EXITED:
            facts.exits[int(fields["rank"])] = fields
        case RecordType.STRAGGLER:
            _mark(facts, int(fields["rank"]), fields.get("share"))
        case RecordType.ATTEMPT_ENDED:
            facts.ended = True
        case _:
            pass


def _mark(facts: AttemptFacts, rank: int, share: float | None) -> None:
    if share is None:
        facts.stragglers.pop(rank, None)
    else:
        facts.stragglers[rank] = float(share)


def rank_numbers(run_dir: RunDir, facts: AttemptFacts) -> list[int]:
    """The ranks of an attempt, ascending: those it was launched with and those that left anything."""
    names = folder_names(run_dir.attempt(facts.number).ranks)
    left = {int(name) for name in names if name.isascii() and name.isdecimal() and len(name) < 7}
    return sorted(left | set(range(facts.world_size)) | set(facts.processes))


def read_ranks(run_dir: RunDir, facts: AttemptFacts, *, over: bool) -> list[RankRow]:
    """Every rank of the attempt. ``over``: nothing of it runs any more, whatever a rank last wrote."""
    attempt_dir = run_dir.attempt(facts.number)
    return [_read_rank(run_dir.root, attempt_dir, facts, rank, over) for rank in rank_numbers(run_dir, facts)]


def read_status(root: Path, rank_dir: RankDir) -> RankStatus | None:
    """What a rank last said of itself, or None where it has said nothing that makes sense."""
    return _read(_STATUS, root, rank_dir.status)


def _read_rank(root: Path, attempt_dir: AttemptDir, facts: AttemptFacts, rank: int, over: bool) -> RankRow:
    rank_dir = attempt_dir.rank(rank)
    status = read_status(root, rank_dir)
    done = _read(_DONE, root, rank_dir.done)
    error = _read(_ERROR, root, rank_dir.error)
    process, exited = facts.processes.get(rank, {}), facts.exits.get(rank)
    lives = not over and not facts.ended and _process_lives(status, process, facts.boot_id)
    pid = status.pid if status else process.get("pid")
    state = rank_state(status=status, done=done, error=error, exited=exited, lives=lives)
    return RankRow(
        rank=rank,
        local_rank=status.local_rank if status else process.get("local_rank"),
        host=status.host if status else None,
        pid=pid,
        state=state,
        exit_code=_exit_code(exited, error),
        signal=None if exited is None else exited.get("signal"),
        phase=status.phase if status else None,
        epoch=status.epoch if status else None,
        step=status.step if status else None,
        steps=status.steps if status else None,
        steps_per_second=status.steps_per_second if status and lives else None,
        resumed_from_step=status.resumed_from_step if status else None,
        snapshot_step=status.snapshot_step if status else None,
        notice=status.notice if status else None,
        device=_device(status, facts, rank),
        process_state=process_state(pid) if lives and pid is not None else None,
        heartbeat_age=_heartbeat_age(root, rank_dir, status) if lives else None,
        straggler=facts.stragglers.get(rank) if lives else None,
        last_line=_last_line(root, rank_dir),
    )


def rank_state(
    *,
    status: RankStatus | None,
    done: RankDone | None,
    error: RankError | None,
    exited: dict[str, Any] | None,
    lives: bool,
) -> RankState:
    """Where a rank is. Its own done marker beats any exit code; a dead process is never shown as running."""
    if done is not None:
        return RankState.DRAINED if done.drained else RankState.DONE
    if exited is not None:
        if exited.get("killed"):
            return RankState.KILLED
        return RankState.DRAINED if exited.get("exit_code") == DRAINED_EXIT_CODE else RankState.FAILED
    if error is not None or not lives:
        return RankState.FAILED
    return RankState.STARTING if status is None else status.state


def _process_lives(status: RankStatus | None, process: dict[str, Any], boot: str | None) -> bool:
    """Whether the rank's process runs; one that nobody has named yet is still on its way."""
    if status is not None:
        pid, started = status.pid, status.start_time
    elif process:
        pid, started = int(process["pid"]), int(process["start_time"])
    else:
        return True
    return ProcessIdentity(pid, started, boot or boot_id()).alive()


def _exit_code(exited: dict[str, Any] | None, error: RankError | None) -> int | None:
    if exited is not None and isinstance(exited.get("exit_code"), int):
        return int(exited["exit_code"])
    return error.exit_code if error is not None else None


def _device(status: RankStatus | None, facts: AttemptFacts, rank: int) -> str | None:
    if status is not None:
        return status.device
    return facts.devices[rank] if rank < len(facts.devices) else None


def _heartbeat_age(root: Path, rank_dir: RankDir, status: RankStatus | None) -> float | None:
    """Seconds since the rank last gave a sign of life: a status or a byte of output."""
    signs = [modified_at(root, rank_dir.log(stream)) for stream in STREAMS]
    signs.append(status.updated_at if status is not None and status.updated_at > 0 else None)
    told = [sign for sign in signs if sign is not None]
    return max(time.time() - max(told), 0.0) if told else None


def _last_line(root: Path, rank_dir: RankDir) -> str | None:
    """The last line of standard output, or where there is none, of standard error."""
    for stream in STREAMS:
        file = open_regular(root, rank_dir.log(stream))
        if file is not None:
            with file:
                line = last_line(file)
            if line is not None:
                return line
    return None


def _read(adapter: TypeAdapter[_T], root: Path, path: Path) -> _T | None:
    """A record that a rank wrote, or None where there is none or the script has written nonsense over it."""
    data = read_small(root, path)
    try:
        return None if data is None else adapter.validate_json(data)
    except ValidationError:
        return None


def _boot_of(keeper: Any) -> str | None:
    boot = keeper.get("boot_id") if isinstance(keeper, dict) else None
    return boot if isinstance(boot, str) else None
