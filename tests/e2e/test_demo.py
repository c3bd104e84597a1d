"""The first thing that anybody runs."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_process import rekindle
from e2e.waiting import until
from rekindle.contract.processes import ProcessIdentity
from rekindle_service.config.home import Home
from rekindle_service.run_readers.lanes import read_usage

_LONG = 240  # seconds: two cold imports of torch, training, and one more attempt, on a busy machine


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home whose server, left running by the demo on purpose, is ended afterwards."""
    home = tmp_path / "home"
    yield home
    server = home / "server.json"
    if server.exists():
        process = ProcessIdentity.of(json.loads(server.read_text())["pid"])
        if process is not None:
            os.kill(process.pid, signal.SIGTERM)
            until(lambda: not process.alive(), "the server of the demo has ended")


def test_the_demo_kills_a_rank_and_training_continues_from_a_snapshot_to_the_end(home: Path) -> None:
    done = rekindle(home, "demo", "--home", str(home), timeout=_LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"kill -9 +rank 1 \(pid \d+\)", done.stdout)
    assert re.search(r"resumed +attempt 2 from step [1-9]\d*", done.stdout)
    assert re.search(r"succeeded +.*accuracy on the test set 0\.9[5-9]", done.stdout)
    assert re.search(r"http://127\.0\.0\.1:\d+/jobs/\w+#token=\S+", done.stdout)
    job = json.loads(rekindle(home, "ps", "-o", "json").stdout)[0]
    assert job["state"] == "succeeded"
    assert job["restarts"] >= 1
    time = json.loads(rekindle(home, "show", job["id"], "-o", "json").stdout)["time"]
    assert time["goodput"] == pytest.approx(job["goodput"], abs=0.02)
    assert min(time["seconds"][each] for each in ("starting", "training", "saving")) > 0
    run_dir = Home(home).run_dir(job["id"])
    samples = [sample for number in (1, 2) for sample in read_usage(run_dir.root, run_dir.attempt(number).usage)]
    assert {usage.rank for sample in samples for usage in sample.ranks} == {0, 1}
    assert all(usage.rss_bytes > 10 << 20 for sample in samples for usage in sample.ranks)
