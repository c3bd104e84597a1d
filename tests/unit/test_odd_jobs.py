"""When played ranks count as hung: what no rank can leave within 15 s, and a healthy job never, however odd."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from odd_jobs import JOBS, every, training
from played_ranks import Join, PlayedRanks, Program, Report, Work, wait
from rekindle.keeper.hangs.stall import LONG_TIMEOUT, MIN_TIMEOUT

_FAULT = 200  # step
_SHOWN, _CERTAIN = 10.0, 15.0  # seconds

HANGS: dict[str, tuple[Sequence[Work | Join | Report], bool, float]] = {
    # what rank 1 does, whether the ranks report steps, seconds until it is a hang
    "another operation": ([Join(operation="broadcast")], True, _CERTAIN),
    "another operation, reports nothing": ([Join(operation="broadcast")], False, _CERTAIN),
    "another shape": ([Join(shape="[[9]] Float")], True, MIN_TIMEOUT + 5),
    "a group that rank 0 does not use": ([Join(group="1")], True, MIN_TIMEOUT + 5),
    "a sleep": ([wait(1e9, "/code/train.py", "sleep")], True, LONG_TIMEOUT + 5),
    "a loader": ([wait(1e9, "/lib/torch/utils/data/dataloader.py")], True, LONG_TIMEOUT + 5),
}


def _play(directory: Path, programs: Sequence[Program], limit: float | None = None) -> PlayedRanks:
    return PlayedRanks(dict(enumerate(programs)), directory, limit)


def _fault(doing: Sequence[Work | Join | Report], *, reports: bool = True) -> Callable[[int], Program]:
    return lambda rank: training(rank, reports=reports, extra=every(_FAULT, *doing, ranks=(1,)))


_BEGAN = 3.0 + _FAULT * 0.55


@pytest.mark.parametrize("case", HANGS.values(), ids=HANGS)
def test_a_hang_is_shown_within_ten_seconds_and_ended_soon_where_no_rank_can_continue(tmp_path, case):
    doing, reports, limit = case
    program = _fault(doing, reports=reports)
    played = _play(tmp_path, [program(0), program(1)])
    hang = played.run(_BEGAN + 3600)
    assert hang is not None
    assert hang.culprit.rank == 1, hang.culprit
    assert played.noticed is not None
    assert played.noticed - _BEGAN <= _SHOWN
    assert played.now - _BEGAN <= limit


def test_a_rank_that_has_ended_is_named_soon_where_all_others_wait_for_it(tmp_path):
    def ends(rank: int) -> Program:
        steps = training(rank)
        for doing in steps:
            yield doing
            if rank == 1 and doing == Report(step=_FAULT):
                return

    played = _play(tmp_path, [ends(0), ends(1)])
    hang = played.run(_BEGAN + 3600)
    assert hang is not None
    assert (hang.culprit.rank, hang.culprit.is_certain) == (1, True)
    assert played.now - _BEGAN <= _CERTAIN


def test_the_limit_of_the_user_holds_whatever_is_certain(tmp_path):
    program = _fault([Join(operation="broadcast")])
    played = _play(tmp_path, [program(0), program(1)], limit=60.0)
    assert played.run(_BEGAN + 3600) is not None
    assert 60 <= played.now - _BEGAN <= 66


def test_a_mismatch_that_completes_is_no_hang_of_a_later_collective(tmp_path):
    """Some are harmless, as a sum of [1] and []: what follows is a slow link, and it ends."""

    def harmless(rank: int) -> Program:
        yield from (Work(1.0), Join(shape=f"[{[1] if rank else []}] Float", operation="all_gather"))
        yield from training(rank, extra=every(100, Join(20.0), ranks=(0, 1)))

    played = _play(tmp_path, [harmless(0), harmless(1)])
    assert played.run(1800) is None


@pytest.mark.parametrize("name", JOBS)
def test_a_healthy_job_is_never_ended_as_hung(tmp_path, name):
    size, program = JOBS[name]
    played = _play(tmp_path, [program(rank) for rank in range(size)])
    if name == "sleeps with the machine":
        played.suspended = lambda now: 900.0 if int(now) % 2400 == 0 else 0.0
    hang = played.run(2400)
    assert hang is None, (played.now, hang)
