"""The load of the machine, from samples of the real one; GPUs from a stand-in for the driver's library."""

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from api_server import ApiServer
from fakes import nvidia_driver
from rekindle.contract.states import JobState
from rekindle_service.machine.monitor import MAX_SAMPLES, MachineMonitor, downsample, evenly_spaced

_GPU_SAMPLE = """
import json
from dataclasses import asdict
from rekindle.contract.nvidia_driver import read_gpus
known, unknown = read_gpus(["GPU-a", "GPU-of-yesterday"])
print(json.dumps([asdict(known), unknown]))
"""


def test_the_machine_shows_its_figures_and_who_holds_its_slots(server: ApiServer, code: Path) -> None:
    job = server.submit(code, ranks=1)
    server.move(job, JobState.STARTING, devices=["cpu:1"])
    shown = server.api.get("/api/v1/machine").json()
    assert shown["cores"] == len(os.sched_getaffinity(0))
    assert 0 < shown["memory"]["used_bytes"] < shown["memory"]["total_bytes"]
    for place in ("home", "shared_memory"):
        assert 0 <= shown["disk"][place]["free_bytes"] <= shown["disk"][place]["total_bytes"]
    assert [(each["name"], each["kind"], each["held_by"]) for each in shown["devices"]] == [
        ("cpu:0", "cpu", None),
        ("cpu:1", "cpu", job["id"]),
    ]
    assert {each["utilization_percent"] for each in shown["devices"]} == {None}


def test_the_cpu_is_known_from_the_second_sample_on_and_the_last_sample_is_the_present(server: ApiServer) -> None:
    first = server.api.get("/api/v1/machine").json()
    assert first["cpu_percent"] is None
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    server.state.monitor.sample()
    shown = server.api.get("/api/v1/machine").json()
    assert 0 < shown["cpu_percent"] <= 100
    assert [point["cpu_percent"] for point in shown["history"]] == [None, shown["cpu_percent"]]
    assert shown["history"][-1]["at"] == shown["at"]
    assert shown["history"][-1]["memory_used_bytes"] == shown["memory"]["used_bytes"]
    assert shown["history"][-1]["disk_free_bytes"] == shown["disk"]["home"]["free_bytes"]
    assert len(server.api.get("/api/v1/machine?max_points=1").json()["history"]) == 1


def test_the_history_stays_bounded_and_keeps_its_ends(server: ApiServer) -> None:
    (sample,) = server.state.monitor.history()
    samples = []
    for number in range(5 * MAX_SAMPLES):
        samples = downsample([*samples, type(sample)(float(number), *fields_but_time(sample))])
    times = [each.at for each in samples]
    assert len(samples) <= MAX_SAMPLES
    assert (times[0], times[-1]) == (0.0, 5 * MAX_SAMPLES - 1)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps[0] > gaps[-1], "what lies long ago is coarser"
    chosen = evenly_spaced(samples, 100)
    assert (len(chosen) <= 100, chosen[-1]) == (True, samples[-1])


def test_the_monitor_samples_until_it_is_closed(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rekindle_service.machine.monitor.SAMPLE_INTERVAL", 0.01)
    monitor = MachineMonitor(server.state.machine, server.state.home.root)
    monitor.start()
    deadline = time.monotonic() + 10
    while len(monitor.history()) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    monitor.close()
    seen = len(monitor.history())
    assert seen >= 3
    assert len(monitor.history()) == seen


@pytest.mark.skipif(not nvidia_driver.HAS_COMPILER, reason="the stand-in is written in C: needs gcc")
@pytest.mark.parametrize("utilization", [True, False])
def test_a_gpu_is_shown_with_what_its_driver_knows(tmp_path: Path, utilization: bool) -> None:
    used = tmp_path / "used"
    used.write_text("1000")
    nvidia_driver.build(tmp_path, used, tells_utilization=utilization)
    answer = subprocess.run(
        [sys.executable, "-c", _GPU_SAMPLE],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        check=True,
        capture_output=True,
    )
    assert json.loads(answer.stdout) == [
        {
            "utilization_percent": nvidia_driver.UTILIZATION if utilization else None,
            "memory_used_bytes": 1000,
            "memory_total_bytes": nvidia_driver.TOTAL,
            "temperature_celsius": nvidia_driver.TEMPERATURE,
            "power_watts": nvidia_driver.MILLIWATTS / 1000,
        },
        None,
    ]


def fields_but_time(sample):
    return [getattr(sample, name) for name in type(sample).__dataclass_fields__ if name != "at"]
