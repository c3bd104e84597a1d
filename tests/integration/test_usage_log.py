"""What the keeper records about real processes and a stand-in for the NVIDIA driver's library."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from fakes import nvidia_driver
from rekindle.contract.files import append_line
from rekindle.contract.processes import ProcessIdentity
from rekindle.contract.run_dir.attempt_samples import UsageSample
from rekindle.keeper.attempt_result import RankResult
from rekindle.keeper.cluster.attempt_nodes import ClusterUsage
from rekindle.keeper.hangs.detector import Activity, RankActivity
from rekindle.keeper.observers import usage_log
from rekindle.keeper.observers.usage_log import UsageLog
from rekindle_service.run_readers.lanes import latest_usage, read_usage

_BUSY = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "x = bytearray(60 << 20)\\nprint('up', flush=True)\\nwhile True: pass"])
child.wait()
"""


def _training() -> Activity:
    return Activity({0: RankActivity("train", 7, 0.25)}, 25.0, 3.5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "usage.jsonl"


@pytest.fixture(autouse=True)
def always_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_log, "INTERVAL", 0.0)


@pytest.fixture
def rank() -> Iterator[RankResult]:
    """A rank that does nothing itself; the process that it has started works and holds 60 MiB."""
    process = subprocess.Popen([sys.executable, "-c", _BUSY], stdout=subprocess.PIPE, start_new_session=True)
    process.stdout.readline()
    identity = ProcessIdentity.of(process.pid)
    yield RankResult(0, identity.pid, identity.start_time)
    os.killpg(process.pid, 9)
    process.wait()
    process.stdout.close()


def test_usage_of_the_children_of_a_rank_counts_as_its_own(tmp_path: Path, path: Path, rank: RankResult) -> None:
    log = UsageLog(path, [])
    log.sample_if_due([rank], _training)
    time.sleep(0.3)
    log.sample_if_due([rank], _training)
    first, second = read_usage(tmp_path, path)
    assert first.ranks[0].cpu_percent is None
    assert 5 < (second.ranks[0].cpu_percent or 0) <= 120
    assert second.ranks[0].rss_bytes > 60 << 20
    assert second.devices == []
    assert (second.ranks[0].phase, second.ranks[0].step, second.ranks[0].waiting) == ("train", 7, 0.25)
    assert (second.hang_after, second.without_progress) == (25.0, 3.5)
    assert latest_usage(tmp_path, path) == second


def test_nodes_have_been_without_progress_as_long_as_the_one_that_had_some_last(tmp_path: Path, path: Path) -> None:
    combined = ClusterUsage(path)
    for node, seconds in ((0, 30.0), (1, 12.5)):
        combined.add(node, UsageSample(1.0, [], [], 25.0 + node, seconds), [0, 1])
    (sample,) = read_usage(tmp_path, path)
    assert (sample.hang_after, sample.without_progress) == (26.0, 12.5)


def test_ranks_that_have_ended_are_omitted_though_nobody_has_noticed(tmp_path: Path, path: Path) -> None:
    own = ProcessIdentity.own()
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    identity = ProcessIdentity.of(zombie.pid)
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    ended = RankResult(0, own.pid, own.start_time, ended_at=1.0)
    UsageLog(path, []).sample_if_due(
        [ended, RankResult(1, zombie.pid, identity.start_time), RankResult(2, own.pid, own.start_time)], _training
    )
    zombie.wait()
    (sample,) = read_usage(tmp_path, path)
    assert [usage.rank for usage in sample.ranks] == [2]


@pytest.mark.skipif(not nvidia_driver.HAS_COMPILER, reason="the stand-in is written in C: needs gcc")
@pytest.mark.parametrize("tells_utilization", [True, False])
def test_a_gpu_is_recorded_with_what_its_driver_reports(tmp_path: Path, path: Path, tells_utilization: bool) -> None:
    used = tmp_path / "used"
    used.write_text("1000")
    library = nvidia_driver.build(tmp_path, used, tells_utilization=tells_utilization)
    UsageLog(path, ["GPU-of-yesterday", "GPU-a"], str(library)).sample_if_due([], _training)
    (sample,) = read_usage(tmp_path, path)
    (gpu,) = sample.devices
    assert (gpu.index, gpu.memory_used_bytes, gpu.memory_total_bytes) == (1, 1000, nvidia_driver.TOTAL)
    assert (gpu.temperature_celsius, gpu.power_watts) == (54, 250.5)
    assert gpu.utilization_percent == (37 if tells_utilization else None)


@pytest.mark.skipif(not nvidia_driver.HAS_COMPILER, reason="the stand-in is written in C: needs gcc")
def test_where_gpus_are_on_the_bus_is_known_only_of_all_together(tmp_path: Path, path: Path) -> None:
    library = str(nvidia_driver.build(tmp_path, tmp_path / "used"))
    for gpus, expected in ((["GPU-a"], {"0000:3b:00"}), (["GPU-a", "GPU-of-yesterday"], None)):
        log = UsageLog(path, gpus, library)
        log.sample_if_due([], _training)
        assert log.bus_ids == expected


def test_without_a_driver_there_are_no_devices(tmp_path: Path, path: Path) -> None:
    UsageLog(path, ["0"], "no-such-library.so").sample_if_due([], _training)
    (sample,) = read_usage(tmp_path, path)
    assert sample.devices == []


def test_the_file_stays_within_its_limit_and_keeps_old_and_new(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = count(time.time())  # one for each sample: the test's own pace is that of a busy machine
    monkeypatch.setattr(usage_log, "time", SimpleNamespace(time=lambda: next(seconds), monotonic=time.monotonic))
    monkeypatch.setattr(usage_log, "MAX_BYTES", 4000)
    log = UsageLog(path, [])
    for _ in range(300):
        log.sample_if_due([], _training)
        assert path.stat().st_size <= 4000
    times = [sample.at for sample in read_usage(tmp_path, path)]
    assert times == sorted(times)
    assert len(times) > 15
    assert times[-1] - times[-2] < times[1] - times[0], "older usage is coarser"


def test_a_keeper_killed_in_the_middle_of_a_line_costs_that_line_only(tmp_path: Path, path: Path) -> None:
    log = UsageLog(path, [])
    log.sample_if_due([], _training)
    with path.open("a") as file:
        file.write('{"at": 17.0, "ranks": [{"rank": 0, "cpu')
    assert latest_usage(tmp_path, path) is not None
    log.sample_if_due([], _training)
    assert len(list(read_usage(tmp_path, path))) == 2


def test_a_disk_that_is_full_costs_the_keeper_nothing(tmp_path: Path) -> None:
    UsageLog(Path("/dev/full"), []).sample_if_due([], _training)
    UsageLog(tmp_path / "gone" / "usage.jsonl", []).sample_if_due([], _training)


@pytest.mark.parametrize(
    "nonsense",
    [
        {"at": 1.0, "ranks": [{"rank": -1, "cpu_percent": 0, "rss_bytes": 0, "read_bytes": 0, "written_bytes": 0}]},
        {"at": 1.0, "ranks": [], "devices": {"index": 0}},
        {"at": "<script>", "ranks": [], "devices": []},
        {"at": 1.0, "ranks": [{"rank": 0, "cpu_percent": 1e308}], "devices": []},
        [],
    ],
)
def test_what_a_script_writes_over_it_is_skipped(tmp_path: Path, path: Path, nonsense: object) -> None:
    append_line(path, nonsense)
    with path.open("ab") as file:
        file.write(b"\xff\xfe" + b"x" * 600_000 + b"\n" + json.dumps({"at": float("nan")}).encode() + b"\n")
    assert list(read_usage(tmp_path, path)) == []
    assert latest_usage(tmp_path, path) is None
    path.unlink()
    path.symlink_to("/dev/zero")
    assert latest_usage(tmp_path, path) is None
