"""Which GPUs a job gets, on a server whose driver is a stand-in, with real keepers and torchrun."""

from pathlib import Path
from typing import Any

import pytest

from e2e.serve_process import ServeProcess
from fakes import nvidia_machine
from fakes.nvidia_driver import HAS_COMPILER
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
