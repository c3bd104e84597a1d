"""A snapshot that was told durable is there after a power cut, and none is torn: on a real ext4 that is cut off.

``--soak N`` cuts N times.
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from disks import Ext4
from faults.faulty_run import SCRIPTS
from rekindle import Snapshots

CUTS = 3
LATEST = 0.25  # seconds after a saver has begun; a save takes about a tenth of that


@pytest.fixture
def disk(tmp_path: Path) -> Ext4:
    return Ext4(tmp_path / "image", tmp_path / "disk", megabytes=32)


class Saver:
    """The process that saves; see ``scripts/saver.py``."""

    def __init__(self, folder: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("REKINDLE_")}
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPTS / "saver.py"), str(folder)],
            env={**environment, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def begin(self) -> None:
        """A new child saves, until the disk takes no more."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        assert self._line() == "begun"

    def told(self) -> int:
        """The last step that the child told to be durable, 0 for none; the child is no more."""
        last = 0
        while (line := self._line()) != "ended":
            last = int(line.removeprefix("durable "))
        return last

    def close(self) -> None:
        self._process.communicate(timeout=30)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the saver has ended"
        return line.rstrip("\n")


@pytest.fixture
def saver(disk: Ext4) -> Iterator[Saver]:
    saver = Saver(disk.folder)
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
            promised = max(promised, saver.told())
            disk.unplug()
            disk.plug_in()
            seen["in the middle of a save"] += any(entry.name.startswith(".tmp") for entry in disk.folder.iterdir())
            newest = checked(disk.folder)
            assert promised <= newest <= promised + 1
            seen["newer than the last told"] += newest > promised
            promised = newest
    finally:
        disk.unplug()
    print(f"{cuts} cuts in {promised} snapshots: {dict(seen)}")
    assert promised > 0


def checked(folder: Path) -> int:
    """The step of the newest snapshot, 0 for none; no damaged one was met on the way to it."""
    restored = Snapshots(folder).restore()
    if restored is None:
        return 0
    assert restored.skipped == []
    assert torch.equal(restored.shared_state["model"]["weight"], torch.full((50_000,), float(restored.step)))
    assert restored.rank_states == [{"step": restored.step}]
    return restored.step
