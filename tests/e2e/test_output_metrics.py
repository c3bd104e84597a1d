"""A script that only prints has curves, progress and results, whichever process is killed in between."""

from pathlib import Path
from typing import Any

import pytest

from cli_process import rekindle
from e2e.serve_process import ServeProcess
from e2e.served_job import ServedJob
from e2e.waiting import until
from rekindle_service.client import Client
from rekindle_service.run_readers.metric_series import read_attempt_latest, read_run_series

pytestmark = pytest.mark.long

_SCRIPT = """
import argparse, os, time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=1.0)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--wait-at", type=int)
args = parser.parse_args()
waited = Path("waited")
step = 5 if waited.exists() else 0
print("listening on 127.0.0.1:29500, pid", os.getpid(), "version 1.2.3", flush=True)
while step < args.steps:
    step += 1
    print(f"step {step}/{args.steps} loss {args.rate / step:.4f} time 12.3ms", flush=True)
    if waited.exists():
        print(f"accuracy: {step}%", flush=True)
    elif step == args.wait_at:
        waited.touch()
        time.sleep(1000)
"""

_EXPERIMENT = """
title = "Rates"
measure = [{ metric = "loss", goal = "min" }]

[base]
script = "train.py"
device = "cpu"

[matrix]
--rate = [1, 2]
"""


def _submit(client: Client, home: Path, code: Path, *args: str, **options: Any) -> ServedJob:
    code.mkdir(exist_ok=True)
    (code / "train.py").write_text(_SCRIPT)
    body = {
        "script": "train.py",
        "code": {"path": str(code)},
        "args": list(args),
        "device": "cpu",
        "ranks": 1,
    } | options
    return ServedJob(client, home, body)


@pytest.mark.parametrize("killed", ["rank", "keeper"])
def test_a_curve_continues_after_a_kill_and_leads_to_its_line(
    home: Path, client: Client, tmp_path: Path, killed: str
) -> None:
    job = _submit(client, home, tmp_path / "code", "--steps", "30", "--wait-at", "12")
    until(lambda: (job.run_dir.code / "waited").exists(), "the script waits in step 12")
    until(lambda: client.job(job.id)["progress"] is not None, "the progress is shown")
    shown = client.job(job.id)
    assert (shown["estimated_step"], shown["progress"], shown["step"]) == (12, 0.4, None)
    job.kill_keeper() if killed == "keeper" else job.kill_rank(0)
    assert job.finish() == "succeeded"
    series = read_run_series(job.run_dir)
    assert series.keys() == {"loss", "accuracy"}
    assert [(point.step, point.value) for point in series["loss"]] == [(n, round(1 / n, 4)) for n in range(1, 31)]
    assert [point.step for point in series["accuracy"]] == list(range(6, 31))
    first = client.metrics(job.id, "loss")
    assert [(each["attempt"], [point[0] for point in each["points"]]) for each in first] == [
        (1, list(range(1, 13))),
        (2, list(range(6, 31))),
    ]
    latest = read_attempt_latest(job.run_dir, 2)["loss"].printed
    assert latest is not None
    log = job.run_dir.attempt(2).rank(latest.rank).log(latest.stream).read_bytes()
    assert log[latest.offset :].startswith(b"step 30/30 loss")
    assert client.job(job.id)["progress"] == 1.0


def test_two_ranks_that_print_the_same_are_one_curve(home: Path, client: Client, tmp_path: Path) -> None:
    job = _submit(client, home, tmp_path / "code", ranks=2)
    assert job.finish() == "succeeded"
    (series,) = client.metrics(job.id, "loss")
    assert [point[0] for point in series["points"]] == list(range(1, 21))


def test_nothing_is_read_where_the_option_turns_it_off(home: Path, client: Client, tmp_path: Path) -> None:
    job = _submit(client, home, tmp_path / "code", printed_metrics=False)
    assert job.finish() == "succeeded"
    assert client.metrics(job.id, "loss") == []
    assert client.job(job.id)["estimated_step"] == 20


def test_what_trials_print_is_the_result_of_an_experiment(home: Path, server: ServeProcess, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    (tmp_path / "rates.toml").write_text(_EXPERIMENT)
    done = rekindle(home, "experiment", "--file", str(tmp_path / "rates.toml"), "--follow", timeout=120)
    assert done.returncode == 0, done.stderr
    assert "loss" in done.stdout.splitlines()[1]
    assert "0.05" in done.stdout
    assert "0.1" in done.stdout
