"""The disk with the run directory is full: a training continues, and what happened is reported once there is room."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from disks import tmpfs
from e2e.waiting import until
from faults.faulty_run import FaultyRun
from rekindle.contract.processes import parent_of, process_state

_HANG = 1.0  # seconds: while the disk is full no step can be reported for several times as long


class Ballast:
    """Takes all the room on a disk."""

    def __init__(self, disk: Path) -> None:
        self._file = disk / "ballast"

    def take_all(self) -> None:
        with self._file.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                return

    def release(self) -> None:
        self._file.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path / "disk", "16m"):
        yield tmp_path / "disk"


@pytest.fixture
def progress(tmp_path: Path) -> Path:
    return tmp_path / "progress"


@pytest.fixture
def run(disk: Path, progress: Path) -> Iterator[FaultyRun]:
    run = FaultyRun(disk / "run", "steps.py", str(progress), ranks=1, hang_timeout=_HANG)
    run.start()
    yield run
    run.close()


def steps_done(progress: Path) -> int:
    text = progress.read_text() if progress.exists() else ""
    return int(text) if text else 0


def test_a_training_that_cannot_report_is_no_hang_and_ends_well(run: FaultyRun, disk: Path, progress: Path) -> None:
    run.reach_step(5)
    ballast = Ballast(disk)
    ballast.take_all()
    until(lambda: steps_done(progress) >= 45, "it continues without room")
    ballast.release()
    assert run.finish() == "succeeded", run.all_logs()
    assert run.attempt == 1
    assert "step 60" in run.log(0)
    assert "[rekindle: the disk was full, " in run.log(0)


def test_a_training_whose_end_could_not_be_recorded_is_reported_and_retried(
    run: FaultyRun, disk: Path, progress: Path
) -> None:
    run.reach_step(5)
    agent = parent_of(run.pid(0))
    assert agent is not None
    ballast = Ballast(disk)
    ballast.take_all()
    until(lambda: steps_done(progress) == 60 and process_state(agent) in (None, "Z"), "it has ended without room")
    ballast.release()
    assert run.finish() == "succeeded", run.all_logs()
    assert run.classes() == ["disk_full", "success"], run.outcomes()
