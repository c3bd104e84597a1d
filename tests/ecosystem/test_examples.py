"""The examples come back from kills and drains."""

import json
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from doc_pages import ROOT
from e2e.served_job import ServedJob
from e2e.waiting import until
from ecosystem.conftest import Submit
from rekindle.contract.run_dir.journal import RecordType
from rekindle_service.client import Client

EPOCH = 25  # steps
SAVED_EVERY = 20  # steps
IMAGES = 800


def steps(job: ServedJob, rank: int = 0) -> list[int]:
    """Steps that the script has recorded, replayed ones included."""
    path = job.run_dir.code / f"trace-{rank}.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [int(json.loads(line)[0]) for line in lines if line.endswith("]\n")]


def last_saved(job: ServedJob, saved: str) -> int:
    """When the latest of these files was written, in ns since the epoch; some vanish as later ones come."""
    times = [0]
    for path in job.run_dir.code.glob(saved):
        with suppress(FileNotFoundError):
            times.append(path.stat().st_mtime_ns)
    return max(times)


def kill_when_saved(job: ServedJob, attempt: int, saved: str) -> None:
    """Kill rank 1 of ``attempt`` when the script has saved in it, and has continued since."""
    job.reach(attempt=attempt, beyond=-1)
    begun = last_saved(job, saved)
    until(lambda: last_saved(job, saved) > begun, f"attempt {attempt} has saved {saved}", 120)
    done = len(steps(job))
    until(lambda: len(steps(job)) > done + 2, "the training goes on", 60)
    job.kill_rank(1)


@pytest.mark.soak
def test_a_plain_script_outlives_more_kills_than_failures_are_forgiven(submit: Submit) -> None:
    job = submit("with_torchrun.py", "--epochs", "4", "--pause", "0.01", max_failures=1)
    for attempt in (1, 2):
        kill_when_saved(job, attempt, "snapshot.pt")
    assert job.finish() == "succeeded"
    assert sorted(set(steps(job))) == list(range(1, 4 * EPOCH + 1))
    ended = job.records(RecordType.ATTEMPT_ENDED)
    assert [each.outcome.klass for each in ended] == ["signal", "signal", "success"]
    assert {each.progress for each in ended[:-1]} == {"known"}


FRAMEWORKS = pytest.mark.parametrize(
    ("script", "package", "saved", "metric"),
    [
        ("with_lightning.py", "lightning", "out/*.ckpt", "loss"),
        ("with_trainer.py", "transformers", "out/checkpoint-*/trainer_state.json", "train/loss"),
        ("with_accelerate.py", "accelerate", "out/checkpoints/*/custom_checkpoint_0.pkl", "loss"),
    ],
)


@FRAMEWORKS
def test_a_killed_script_repeats_only_what_came_after_its_last_save(
    submit: Submit, client: Client, script: str, package: str, saved: str, metric: str
) -> None:
    job = submit(script, "--epochs", "4", package=package)
    kill_when_saved(job, 1, saved)
    assert job.finish() == "succeeded"
    (before, resumed) = next(pair for pair in pairwise(steps(job)) if pair[1] != pair[0] + 1)
    assert resumed == before // SAVED_EVERY * SAVED_EVERY + 1
    second = client.attempts(job.id)[1]
    assert second["resumed_from_step"] == resumed - 1
    assert str(second["start"]).startswith("resumed from its own checkpoint out/")
    assert_every_sample_once(job)
    curves = {series["attempt"]: [point[0] for point in series["points"]] for series in client.metrics(job.id, metric)}
    assert curves == {
        1: list(range(5, curves[1][-1] + 1, 5)),  # a kill loses what was logged in the last half second
        2: list(range(resumed + 4, 4 * EPOCH + 1, 5)),
    }


@FRAMEWORKS
def test_a_drained_script_resumes_at_its_next_step(
    submit: Submit, client: Client, script: str, package: str, saved: str, metric: str
) -> None:
    job = submit(script, "--epochs", "4", package=package)
    expected: list[int] = []
    for attempt, step in ((1, 26), (2, 2 * EPOCH - 2)):  # in the middle of an epoch, and near its end
        job.reach(attempt=attempt, beyond=step)
        client.drain(job.id)
        until(lambda: job.state() == "queued", "the job is drained", 60)
        expected.append(steps(job)[-1])
        client.resume(job.id)
    assert job.finish() == "succeeded"
    assert [steps(job, rank) for rank in (0, 1)] == [list(range(1, 4 * EPOCH + 1))] * 2
    assert_every_sample_once(job)
    assert [each["resumed_from_step"] for each in client.attempts(job.id)] == [None, *expected]
    ended = [each.outcome for each in job.records(RecordType.ATTEMPT_ENDED)]
    assert [each.klass for each in ended] == ["preempted", "preempted", "success"]
    assert {each.message for each in ended[:2]} == {"Saved and stopped on request."}


def assert_every_sample_once(job: ServedJob) -> None:
    """Each epoch has trained each sample once, as its steps were done last."""
    trained: dict[int, Counter[int]] = {}
    for rank in (0, 1):
        lines = (job.run_dir.code / f"trace-{rank}.jsonl").read_text().splitlines()
        for step, samples in {step: samples for step, _, samples in map(json.loads, lines)}.items():
            trained.setdefault((step - 1) // EPOCH, Counter()).update(samples)
    assert {epoch: (len(seen), max(seen.values())) for epoch, seen in trained.items()} == dict.fromkeys(
        range(4), (IMAGES, 1)
    )


@FRAMEWORKS
def test_outside_rekindle_a_callback_is_silent(
    tmp_path: Path, script: str, package: str, saved: str, metric: str
) -> None:
    pytest.importorskip(package)
    example = ROOT / "docs" / "examples" / script
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", example, "--epochs", "1", "--pause", "0"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (done.returncode, "rekindle" in done.stdout) == (0, False), done.stderr


def test_a_run_of_wandb_is_one_run_over_all_attempts(submit: Submit) -> None:
    job = submit("with_wandb.py", package="wandb", ranks=1, env={"WANDB_MODE": "offline", "WANDB_SILENT": "true"})
    kill_one_rank(job, "snapshot.pt")
    directories = sorted((job.run_dir.code / "wandb").glob("offline-run-*"))
    assert len(directories) == 2
    assert {directory.name.rpartition("-")[2] for directory in directories} == {job.id}


def test_a_run_of_mlflow_whose_id_was_saved_is_continued(submit: Submit) -> None:
    job = submit("with_mlflow.py", package="mlflow", ranks=1)
    kill_one_rank(job, "snapshot.pt")
    assert mlflow_runs(job.run_dir.code / "mlflow.db") == 1


def mlflow_runs(database: Path) -> int:
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        return int(connection.execute("SELECT count(*) FROM runs").fetchone()[0])


def test_a_fixed_directory_of_hydra_is_the_same_for_all_attempts(submit: Submit) -> None:
    job = submit("with_hydra.py", "hydra.run.dir=outputs/run", package="hydra", ranks=1)
    kill_one_rank(job, "outputs/run/snapshot.pt")
    assert [path.name for path in (job.run_dir.code / "outputs").iterdir()] == ["run"]
    printed = job.run_dir.attempt(2).rank(0).log("stdout").read_text()
    assert 0 < int(printed.split()[-1]) < 60, "the second attempt has not found what the first one saved"


def kill_one_rank(job: ServedJob, saved: str) -> None:
    until(lambda: (job.run_dir.code / saved).exists(), f"{saved} is there", 120)
    job.kill_rank(0)
    assert job.finish() == "succeeded"
    assert job.attempt() == 2
