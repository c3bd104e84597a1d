"""What the files of an attempt tell after it has ended."""

from rekindle.contract.durable import read_json
from rekindle.contract.layout import AttemptDir, RunDir
from rekindle.contract.rank_records import RankStatus
from rekindle.keeper.facts import AttemptFacts, Ending

_TAIL = 4000


def read_statuses(attempt_dir: AttemptDir) -> list[RankStatus]:
    """The last word of every rank that left one."""
    values = [read_json(attempt_dir.rank(number).status) for number in attempt_dir.rank_numbers()]
    return [RankStatus.from_json(value) for value in values if value is not None]


def facts_of_lost_attempt(run_dir: RunDir, number: int, world_size: int) -> AttemptFacts:
    """An attempt whose keeper died before it could write the end. Done markers of all ranks make it a success."""
    folder = run_dir.attempt(number)
    done = all(folder.rank(rank).done.exists() for rank in range(world_size))
    facts = AttemptFacts(attempt=number, world_size=world_size, ending=Ending.DONE if done else Ending.KEEPER_LOST)
    read_steps(facts, folder)
    return facts


def read_steps(facts: AttemptFacts, attempt_dir: AttemptDir) -> None:
    """Fill in how far the ranks came, by their own last words."""
    statuses = read_statuses(attempt_dir)
    facts.resumed_from_step = max(
        (s.resumed_from_step for s in statuses if s.resumed_from_step is not None), default=None
    )
    facts.last_step = max((s.step for s in statuses if s.step is not None), default=None)
    facts.durable_step = max((s.durable_step for s in statuses if s.durable_step is not None), default=None)


def agent_log_tail(attempt_dir: AttemptDir) -> str:
    """The last few kilobytes of torchrun's own output."""
    try:
        with attempt_dir.agent_log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def snapshot_listing(run_dir: RunDir) -> dict[str, tuple[int, int]]:
    """Name → (size, modification time in ns) of everything in the snapshot directory: changed means progress.

    For scripts that write snapshots of their own and report no step.
    """
    listing: dict[str, tuple[int, int]] = {}
    for path in run_dir.snapshots.rglob("*"):
        try:
            stat = path.lstat()
        except FileNotFoundError:
            continue
        listing[str(path.relative_to(run_dir.snapshots))] = (stat.st_size, stat.st_mtime_ns)
    return listing
