"""Succeeded means that the result is safe, and that the training has reached its end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from disks import tmpfs
from e2e.waiting import until
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.states import JobIntent


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path / "disk", "4m"):
        yield tmp_path / "disk"


def phase(run):
    status = run.status(0)
    return None if status is None else status.phase


def test_a_training_waits_for_room_for_its_last_snapshot_and_then_succeeds(begin, disk):
    run = begin("result.py", "full", str(disk), "100", ranks=1)
    until(lambda: phase(run) == "waiting for disk space", "the last snapshot has no room", 120)
    assert run.rank_lives(0)
    (disk / "ballast").unlink()
    assert run.finish() == "succeeded"
    assert (run.attempt, sorted(path.name for path in disk.glob("*3"))) == (1, ["000000000003"])


def test_a_training_whose_last_snapshot_cannot_be_written_never_succeeds(begin, disk):
    run = begin("result.py", "full", str(disk), "1", ranks=1, max_failures=1)
    assert run.finish() == "failed"
    first, second = run.outcomes()
    for outcome in (first, second):
        assert outcome["class"] == "disk_full"
        assert "the last snapshot (step 3) could not be written" in outcome["message"]
        assert "the result is not stored: the disk is full" in outcome["message"]
    assert [record.progress for record in run.records(RecordType.ATTEMPT_ENDED)] == ["known", "none"]
    assert "ended" not in run.log(0)


def test_a_training_that_has_reached_its_end_has_succeeded_though_it_is_asked_to_stop(begin):
    run = begin("result.py", "wait", ranks=1)
    run.reach_step(1)
    run.want(JobIntent.DRAIN)
    assert run.finish() == "succeeded"
    assert run.classes() == ["success"]
