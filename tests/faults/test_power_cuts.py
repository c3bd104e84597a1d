"""A snapshot that was reported durable is there after a power cut, and none is torn: on a real ext4 that is cut off.

``--soak N`` cuts N times.
"""

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from disks import Ext4
from faults.faulty_run import SCRIPTS
from rekindle import Snapshots
from script_process import ScriptProcess

CUTS = 3
LATEST = 0.25  # seconds after a saver has begun; a save takes about a tenth of that


@pytest.fixture
def disk(tmp_path: Path) -> Ext4:
    return Ext4(tmp_path / "image", tmp_path / "disk", megabytes=32)


class Saver(ScriptProcess):
    """The process that saves; see ``scripts/saver.py``."""

    def begin(self) -> None:
        """A new child saves, until the disk takes no more."""
        assert self.ask("go") == "begun"

    def reported(self) -> int:
        """The last step that the child has reported durable, 0 for none; waits for the end of the child."""
        last = 0
        while (line := self.line()) != "ended":
            last = int(line.removeprefix("durable "))
        return last


@pytest.fixture
def saver(disk: Ext4) -> Iterator[Saver]:
    saver = Saver(SCRIPTS / "saver.py", disk.directory)
    yield saver
    saver.close()


@pytest.mark.timeout(0)
def test_the_latest_snapshot_after_a_power_cut_is_the_last_that_was_reported_durable(
    disk: Ext4, saver: Saver, request: pytest.FixtureRequest
) -> None:
    cuts = request.config.getoption("--soak") or CUTS
    chance = random.Random(cuts)
    promised, seen = 0, Counter[str]()
    disk.plug_in()
    try:
        for _ in range(cuts):
            saver.begin()
            time.sleep(chance.uniform(0, LATEST))
            disk.cut_off()
            promised = max(promised, saver.reported())
            disk.unplug()
            disk.plug_in()
            seen["in the middle of a save"] += any(entry.name.startswith(".tmp") for entry in disk.directory.iterdir())
            latest = checked(disk.directory)
            assert promised <= latest <= promised + 1
            seen["later than the last reported"] += latest > promised
            promised = latest
    finally:
        disk.unplug()
    print(f"{cuts} cuts in {promised} snapshots: {dict(seen)}")
    assert promised > 0


def checked(directory: Path) -> int:
    """The step of the latest snapshot, 0 for none; no damaged one was met on the way to it."""
    restored = Snapshots(directory).restore()
    if restored is None:
        return 0
    assert restored.skipped == []
    assert torch.equal(restored.shared_state["model"]["weight"], torch.full((50_000,), float(restored.step)))
    assert restored.rank_states == [{"step": restored.step}]
    return restored.step
