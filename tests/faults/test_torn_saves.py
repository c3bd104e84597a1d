"""A save that ends in the middle, at each call in turn, leaves the old snapshot or the new one: never none, never half.

``--soak N`` kills at every system call too, whatever N is: it needs strace, and some minutes.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from faults.faulty_run import SCRIPTS
from rekindle import Snapshots

pytestmark = pytest.mark.short

OLD, NEW = (
    {"newer": (1, 0), "again": (1, 0), "fallback": (1, 0)},
    {"newer": (2, 0), "again": (1, 1), "fallback": (1, 0)},
)
Report = dict[str, Any]


def fail_at_each_call(home: Path, *cases: str) -> list[Report]:
    argv = [sys.executable, str(SCRIPTS / "fragile_saver.py"), str(home), *cases]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REKINDLE_")}
    ended = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={**environment, "OMP_NUM_THREADS": "1"}
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.fixture(scope="module")
def kills(tmp_path_factory: pytest.TempPathFactory) -> list[Report]:
    return fail_at_each_call(tmp_path_factory.mktemp("kills"), "newer:SIGKILL", "again:SIGKILL", "fallback:SIGKILL")


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> list[Report]:
    return fail_at_each_call(tmp_path_factory.mktemp("failures"), "newer:EDQUOT", "again:EIO", "fallback:EROFS")


def of(case: str, reports: list[Report]) -> list[Report]:
    return [each for each in reports if each["case"] == case]


def found(directory: Path) -> tuple[int, int]:
    """Step and version from which a new launch continues. Nothing but snapshots is left in ``directory`` then."""
    restored = Snapshots(directory).restore()
    assert restored is not None, f"no snapshot is left in {directory}"
    step, version = restored.step, restored.shared_state["version"]
    assert torch.equal(restored.shared_state["model"]["weight"], torch.full((30_000,), step + version / 10))
    assert restored.rank_states == [{"step": step}]
    assert [entry.name for entry in directory.iterdir() if entry.name.startswith(".")] == []
    return step, version


@pytest.mark.parametrize("case", ["newer", "again", "fallback"])
def test_a_kill_at_any_call_to_the_disk_leaves_the_old_snapshot_or_the_new_one(kills: list[Report], case: str) -> None:
    *killed, whole = of(case, kills)
    assert {each["status"] for each in killed} == {signal.SIGKILL}
    assert (whole["status"], whole["problem"], whole["next"]) == (0, None, None)
    assert len(killed) >= {"newer": 50, "again": 15, "fallback": 3}[case]
    left = [found(Path(each["directory"])) for each in killed]
    assert left == sorted(left)
    assert {left[0], left[-1]} == {OLD[case], NEW[case]}


@pytest.mark.parametrize("case", ["newer", "again", "fallback"])
def test_a_disk_that_fails_at_any_call_costs_that_snapshot_at_most(failures: list[Report], case: str) -> None:
    *failed, whole = of(case, failures)
    assert (whole["at"], whole["status"], whole["problem"]) == ("", 0, None)
    assert failed
    for each in failed:
        assert each["status"] == 0, each
        at_hand = (OLD[case], NEW[case]) if each["problem"] is not None else (NEW[case],)
        assert tuple(each["back"]) in at_hand, each
        assert each["next"] is None, each
        assert each["fault"] != "EDQUOT" or each["problem"] is None or "full or read-only" in each["problem"], each
        assert found(Path(each["directory"])) == (3, 0)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("case", ["newer", "again", "fallback"])
def test_a_kill_at_any_system_call_leaves_the_old_snapshot_or_the_new_one(case: str, tmp_path: Path) -> None:
    reports = fail_at_each_call(tmp_path, f"{case}:strace")
    killed = [each for each in reports if each["status"] == signal.SIGKILL]
    print(f"{case}: {len(killed)} kills, {dict(Counter(each['at'] for each in killed))}")
    assert {each["status"] for each in reports} <= {0, signal.SIGKILL}
    assert {"openat", "fsync", "rename"} <= {each["at"] for each in killed}
    left = Counter(found(Path(each["directory"])) for each in killed)
    print(f"{case}: left {dict(left)}")
    assert set(left) == {OLD[case], NEW[case]}
