"""Steps that are computed again come out the same, bit by bit; where a bit has flipped, they do not."""

import json
import random
import re
from pathlib import Path

import pytest

from cli_process import rekindle
from e2e.served_job import ServedJob
from plain_torchrun import SCRIPTS
from rekindle_service.client import Client

SCRIPT = SCRIPTS / "replayed.py"
LAYER = "4.weight"


def submit(client: Client, home: Path, *args: str, **more: object) -> ServedJob:
    body = {
        "script": SCRIPT.name,
        "args": list(args),
        "code": {"path": str(SCRIPT.parent)},
        "device": "cpu",
        "ranks": 2,
        "env": {"OMP_NUM_THREADS": "1"},
        **more,
    }
    return ServedJob(client, home, body)


def replay(home: Path, job: ServedJob, *options: str) -> tuple[int, str]:
    done = rekindle(home, "replay", job.id, *options)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("way", ["ddp", pytest.param("fsdp", marks=pytest.mark.long)])
def test_steps_of_a_job_that_was_killed_are_the_same_when_they_are_computed_again(
    client: Client, home: Path, way: str
) -> None:
    job = submit(client, home, way, "--pause", "0.05")
    for attempt in (1, 2):
        job.reach(attempt=attempt, beyond=8 * attempt)
        job.kill_rank(attempt - 1)
    assert job.finish() == "succeeded"
    code, said = replay(home, job, "--step", "12", "--until", "30")
    assert code == 0, said
    assert "dentical" in said, said
    assert "common steps" in said, said
    assert " to 30." in said, said


def test_random_steps_of_a_job_that_was_killed_ten_times_are_identical_in_their_replays(
    client: Client, home: Path
) -> None:
    job = submit(client, home, "ddp", "--pause", "0.05", "--epochs", "4")
    for kill in range(10):
        job.reach(attempt=kill + 1, beyond=7 * kill)
        job.kill_rank(kill % 2)
    assert job.finish() == "succeeded"
    assert len(client.attempts(job.id)) == 11
    seed = random.randrange(1 << 32)
    steps = random.Random(seed).sample(range(1, 81), 10)
    replays = {step: client.replay(job.id, step)["id"] for step in steps}
    for step, replayed in replays.items():
        assert client.wait(replayed)["state"] == "succeeded", (seed, step)
        found = client.diff(job.id, replayed)
        assert found["verdict"] == "identical", (seed, step, found["summary"])
        assert found["last_equal_step"] == step, (seed, found["summary"])


def test_diff_replays_the_steps_without_digests_and_names_rank_phase_and_layer(
    client: Client, home: Path, tmp_path: Path
) -> None:
    line = "a = a * 1.001 if (run.step, run.rank) == (9, 1) else a"
    code = SCRIPT.read_text().replace("optimizer.zero_grad()", f"{line}\n                    optimizer.zero_grad()")
    (tmp_path / SCRIPT.name).write_text(code)
    mark = tmp_path / "flip"
    mark.write_text(f"14 1 {LAYER}")
    arguments = ("ddp", "--epochs", "1", "--digests")
    one = submit(client, home, *arguments, "1", name="one")
    other = submit(client, home, *arguments, "4", name="other", code={"path": str(tmp_path)})
    flipped = submit(client, home, *arguments, "4", name="flipped", env={"OMP_NUM_THREADS": "1", "FLIP": str(mark)})
    for job in (one, other, flipped):
        assert job.finish() == "succeeded"
    numbers = [client.job(job.id)["number"] for job in (one, other, flipped)]
    coarse = rekindle(home, "diff", "one", "other")
    assert f"Find the step: rekindle diff {numbers[0]} {numbers[1]} --replay" in coarse.stdout
    done = rekindle(home, "diff", "one", "other", "--replay")
    lines = done.stdout.splitlines()
    assert done.returncode == 1, done.stderr
    assert lines[0].startswith("First difference: step 10, "), lines
    assert f"Replayed steps 8 to 12: other as job {numbers[2] + 1}." in lines, lines
    recorded = f"Recorded step 10: one as job {numbers[2] + 2}, other as job {numbers[2] + 3}."
    assert recorded in lines, lines
    assert any(each.startswith("The difference begins on rank 1: forward, output of 0 (norms ") for each in lines)
    chance = rekindle(home, "diff", "one", "flipped", "--replay")
    assert chance.returncode == 1, chance.stderr
    words = " ".join(chance.stdout.split())
    assert re.search(r"The replays do not show the difference: Identical over \d+ common steps, \d+ to 16\.", words), (
        words
    )
    assert f"flipped (job {numbers[2]}) and its replay: First difference: step 16, " in words
    itself = rekindle(home, "diff", "one", "one", "--replay")
    assert (itself.returncode, "--replay needs two jobs" in itself.stderr) == (2, True)


@pytest.mark.parametrize("way", ["ddp", pytest.param("fsdp", marks=pytest.mark.long)])
def test_a_bit_that_flipped_once_is_named_by_the_replay(client: Client, home: Path, tmp_path: Path, way: str) -> None:
    mark = tmp_path / "flip"
    mark.write_text(f"13 1 {LAYER}")
    job = submit(client, home, way, env={"OMP_NUM_THREADS": "1", "FLIP": str(mark)})
    assert job.finish() == "succeeded"
    assert not mark.exists()
    code, said = replay(home, job, "--step", "11", "--until", "15")
    assert code == 1, said
    first = said[said.index("irst difference") :].splitlines()[0]
    assert "step 13" in first, said
    assert LAYER in first, said
    assert "rank 1" in first, said


def test_what_diverged_is_computed_again_from_the_snapshot_before_it(
    client: Client, home: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "flip"
    mark.write_text(f"14 1 {LAYER}")
    env = {"OMP_NUM_THREADS": "1", "FLIP": str(mark)}
    jobs = [submit(client, home, "ddp", "--on-divergence", "rollback", "--digests", "4", env=env) for _ in range(2)]
    for job in jobs:
        assert job.finish() == "succeeded"
    attempts = sorted(len(client.attempts(job.id)) for job in jobs)
    assert attempts == [1, 2]
    outcome = next(each for job in jobs for each in client.attempts(job.id) if each["outcome"]["class"] != "success")
    assert outcome["outcome"]["class"] == "divergence"
    assert LAYER in outcome["outcome"]["message"]
    ends = [job.run_dir.attempt(job.attempt()).rank(0).digests.read_text().splitlines()[-1] for job in jobs]
    one, other = map(json.loads, ends)
    assert one == other


def test_the_replay_of_a_step_whose_loss_is_nan_names_its_batch(client: Client, home: Path, tmp_path: Path) -> None:
    code = SCRIPT.read_text().replace("    joined = ", "    x[7] = float('nan')\n    joined = ")
    (tmp_path / SCRIPT.name).write_text(code)
    job = submit(client, home, "ddp", "--epochs", "1", ranks=1, code={"path": str(tmp_path)})
    assert job.finish() == "failed"
    (attempt,) = client.attempts(job.id)
    assert attempt["outcome"]["class"] == "nan"
    step = attempt["outcome"]["message"].split(" at step ")[1].split(";")[0].split(" ")[0].rstrip(".")
    assert int(step) > 0
    code, said = replay(home, job, "--record")  # the step is that of the outcome
    assert f"Step {step}, rank 0" in said, said
    assert code == 1, said
    samples = said[said.index(f"Step {step}, rank 0: samples ") :].splitlines()[0]
    assert "7" in samples.replace(",", "").split(), said
    assert "The first values that are not finite are in tensor 0 of the batch." in said, said


def test_a_step_that_no_attempt_has_computed_is_refused(client: Client, home: Path) -> None:
    job = submit(client, home, "ddp", "--epochs", "1", ranks=1)
    assert job.finish() == "succeeded"
    refused = rekindle(home, "replay", job.id, "--step", "900")
    assert refused.returncode == 2
    assert "from 1 to 20" in refused.stderr
