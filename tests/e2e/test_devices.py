"""Which GPUs a job gets, on a server whose driver is a stand-in, with real keepers and torchrun."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from e2e.serve_process import ServeProcess
from e2e.waiting import until
from fakes import nvidia_machine
from fakes.nvidia_driver import HAS_COMPILER
from fakes.nvidia_machine import NvidiaMachine
from rekindle.contract.cores import cores_of_slots
from rekindle_service.client import Client, ProblemError
from rekindle_service.config.settings import Settings

SCRIPT = """
import os, sys
print("visible", os.environ["CUDA_VISIBLE_DEVICES"], "rank", os.environ.get("RANK"), "of", os.environ.get("WORLD_SIZE"))
"""


@pytest.mark.skipif(not HAS_COMPILER, reason="needs gcc")
def test_jobs_get_the_devices_that_they_choose_and_see_no_others(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (driver := tmp_path / "driver").mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvidia_machine.build(driver)))
    monkeypatch.setenv("REKINDLE_EXCLUDE_DEVICES", "cuda:3")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (code := tmp_path / "code").mkdir()
    (code / "train.py").write_text(SCRIPT)
    base: dict[str, Any] = {"script": str(code / "train.py")}
    with ServeProcess(home), Client.from_home(Settings(home=home)) as client:
        assert [slot["name"] for slot in client.devices()["items"]][:4] == ["cuda:0", "cuda:1", "cuda:2", "cpu:0"]
        jobs = [
            client.submit({**base, "env": {"CUDA_VISIBLE_DEVICES": "1,2"}, "launch": "process"}),
            client.submit({**base, "ranks": 2, "links": "avoided"}),
        ]
        for device in ("cuda:3", "cuda:0,cuda:0"):
            with pytest.raises(ProblemError, match="device: must"):
                client.submit({**base, "device": device})
        shown = []
        for job in jobs:
            ended = client.wait(job["id"])
            assert ended["state"] == "succeeded", ended["outcome"]
            log = min((home / "runs" / job["id"]).rglob("ranks/*/stdout.log"))
            shown.append((log.read_text().strip(), ended["world_size"]))
        assert shown == [
            ("visible GPU-0001,GPU-0002 rank None of None", 1),
            ("visible GPU-0000,GPU-0002 rank 0 of 2", 2),
        ]
        chosen = [(job["launch"], job["devices_per_rank"], job["device"]) for job in jobs]
        assert chosen == [("process", 2, "cuda:1,cuda:2"), ("torchrun", 1, "cuda")]


WAITING = """
import os, sys, time
print("sees", os.environ["CUDA_VISIBLE_DEVICES"], os.environ.get("REKINDLE_GPU_SHARE"), sorted(os.sched_getaffinity(0)))
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""


@pytest.mark.skipif(not HAS_COMPILER, reason="needs gcc")
def test_jobs_share_gpus_on_request_and_none_gets_one_that_a_stranger_uses(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (driver := tmp_path / "driver").mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvidia_machine.build(driver)))
    cores = len(usable := os.sched_getaffinity(0))
    monkeypatch.setenv("REKINDLE_AFFINITY", "slots")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (code := tmp_path / "code").mkdir()
    (code / "train.py").write_text(WAITING)
    base: dict[str, Any] = {"script": str(code / "train.py"), "args": [str(end := tmp_path / "end")], "warm": False}
    base |= {"launch": "process", "device": "cuda"}
    stranger = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    NvidiaMachine(driver).say("processes", 0, f"{stranger.pid} {14 << 30}")
    try:
        with ServeProcess(home, cpu_slots=cores), Client.from_home(Settings(home=home)) as client:
            halves = [client.submit({**base, "gpu_share": 0.5}) for _ in range(3)]
            client.disable_device("cuda:3", "for a repair")
            jobs = [*halves, client.submit({**base, "device": "cpu"}), client.submit({**base, "device": "cuda:0"})]
            logs = [home / "runs" / job["id"] / "attempts/1/ranks/0/stdout.log" for job in jobs[:4]]
            until(lambda: all(log.exists() and log.read_text().endswith("\n") for log in logs), "all have printed")
            shown = [log.read_text().strip() for log in logs]
            everywhere = str(sorted(usable))
            assert [line.partition(" [")[0] for line in shown] == [
                "sees GPU-0001 0.5", "sees GPU-0001 0.5", "sees GPU-0002 0.5", "sees  None"
            ]  # fmt: skip
            assert shown[0].endswith(everywhere), "this machine does not say where the GPU is"
            assert shown[3].endswith(str(sorted(cores_of_slots([0], cores, usable))))
            slots = {slot["name"]: slot for slot in client.devices()["items"]}
            assert [slots[f"cuda:{index}"]["free_share"] for index in range(4)] == [1, 0, 0.5, 1]
            assert [user["pid"] for user in slots["cuda:0"]["users"]] == [stranger.pid]
            assert "14 GiB" in str(slots["cuda:0"]["unusable"])
            assert str(slots["cuda:3"]["unusable"]).endswith(": for a repair")
            assert client.job(jobs[4]["id"])["state"] == "queued"
            stranger.communicate()
            NvidiaMachine(driver).unsay("processes", 0)
            end.touch()
            assert [client.wait(job["id"])["state"] for job in jobs] == ["succeeded"] * 5
    finally:
        end.touch()  # else jobs of a test that has failed wait for ever
        stranger.communicate()
