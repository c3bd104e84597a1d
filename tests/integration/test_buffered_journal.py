"""The keeper's journal on a full disk and on one that is read-only: nothing is lost, and only what must wait waits."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from disks import fill, remount, tmpfs
from rekindle.contract.run_dir.journal import RecordType, read_journal
from rekindle.keeper.buffered_journal import BufferedJournal


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path / "disk", "1m"):
        yield tmp_path / "disk"


def test_what_found_no_space_is_written_first_and_in_order_once_there_is_some(disk: Path) -> None:
    path = disk / "journal.jsonl"
    ballast, waits = fill(disk), []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            ballast.unlink()

    journal = BufferedJournal(path, wait)
    for step in (1, 2):
        journal.write_nowait(RecordType.RESUMED, attempt=1, step=step)
    assert (list(read_journal(path)), waits) == ([], [])
    journal.write(RecordType.ATTEMPT_STARTED, attempt=2, run=1, world_size=0, devices=[])
    assert len(waits) == 2
    records = list(read_journal(path))
    assert [(record.type, record.attempt) for record in records] == [
        (RecordType.RESUMED, 1),
        (RecordType.RESUMED, 1),
        (RecordType.ATTEMPT_STARTED, 2),
    ]
    assert [record.step for record in records[:2]] == [1, 2]
    assert records == sorted(records, key=lambda record: record.at)


def test_whoever_waits_may_give_up(disk: Path) -> None:
    fill(disk)

    def give_up(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        BufferedJournal(disk / "journal.jsonl", give_up).write(RecordType.ATTEMPT_STARTED, attempt=1)


def test_on_a_disk_that_is_read_only_nothing_is_waited_for(disk: Path) -> None:
    journal = BufferedJournal(disk / "journal.jsonl", lambda _: pytest.fail("space would not help"))
    remount(disk, writable=False)
    journal.write_nowait(RecordType.RESUMED, attempt=1, step=1)
    with pytest.raises(OSError, match=r"journal\.jsonl") as refused:
        journal.write(RecordType.ATTEMPT_STARTED, attempt=2, run=1, world_size=0, devices=[])
    assert refused.value.errno == errno.EROFS
    remount(disk, writable=True)
    journal.write(RecordType.ATTEMPT_STARTED, attempt=3, run=1, world_size=0, devices=[])
    assert [record.type for record in read_journal(disk / "journal.jsonl")] == [
        RecordType.RESUMED,
        RecordType.ATTEMPT_STARTED,
        RecordType.ATTEMPT_STARTED,
    ]
