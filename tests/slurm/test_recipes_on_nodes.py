"""What people run, on two nodes each: recipes, a script of their own, an experiment."""

import re
from pathlib import Path

import pytest

from cli_process import rekindle
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from recipe_process import RecipeProcess
from slurm.cluster import Cluster
from slurm.conftest import Submit

CORPUS = Path(__file__).parent.parent / "corpus" / "scripts"
OPTIONS = ("--epochs", "4", "--throttle", "0.1", "--batch-size", "240")
pytestmark = pytest.mark.soak


@pytest.mark.parametrize("recipe", ["ddp", "fsdp"])
def test_a_recipe_killed_on_two_nodes_ends_with_the_weights_of_one_machine(
    submit: Submit, tmp_path: Path, recipe: str
) -> None:
    recipes = RecipeProcess()
    try:
        alone = recipes.run(tmp_path / "alone", recipe, 2, *OPTIONS)
    finally:
        recipes.kill()
    job = submit(recipe=recipe, args=list(OPTIONS), snapshot={"every_steps": 5})
    snapshot = job.reach_snapshot()
    job.signal_rank(1)
    job.reach(attempt=2, beyond=snapshot)
    assert job.finish() == "succeeded", job.all_logs()
    logs = [job.run_dir.attempt(job.attempt).rank(rank).log("stdout").read_text() for rank in (0, 1)]
    found = {re.findall(r"weights sha256 ([0-9a-f]{64})", log)[-1] for log in logs}
    assert found == {alone.weights}


def test_an_unmodified_script_resumes_from_its_own_checkpoint_on_two_nodes(submit: Submit) -> None:
    command = ["--dist-url", "env://", "--dist-backend", "gloo", "--epochs", "15", "--resume", "checkpoint.pth.tar"]
    job = submit(script="main.py", code={"path": str(CORPUS / "imagenet")}, args=command)
    saved = job.run_dir.code / "checkpoint.pth.tar"
    until(saved.exists, f"the script has saved\n{job.all_logs()}", 120)
    job.signal_rank(1)
    assert job.finish() == "succeeded", job.all_logs()
    assert job.classes() == ["signal", "success"]
    assert "=> loaded checkpoint" in job.run_dir.attempt(2).rank(0).log("stdout").read_text()


def names_of_jobs(cluster: Cluster) -> set[str]:
    """The names of all jobs that Slurm has not forgotten."""
    return set(cluster.run("squeue", "--noheader", "--states=all", "--format=%j").split())


def test_an_experiment_is_a_slurm_job_for_each_trial(
    cluster: Cluster, home: Path, server: ServeProcess, tmp_path: Path
) -> None:
    (tmp_path / "rates.toml").write_text("""
title = "Two rates"
measure = ["loss"]

[base]
recipe = "ddp"
device = "cpu"
nodes = 2
ranks = 2
args = ["--epochs", "1", "--batch-size", "240"]
slurm = { partition = "main" }

[matrix]
--lr = [0.1, 0.01]
""")
    before = names_of_jobs(cluster)
    done = rekindle(home, "experiment", "--file", str(tmp_path / "rates.toml"), "--follow", timeout=240)
    assert done.returncode == 0, done.stderr
    assert "2 of 2" in done.stderr
    assert len(names_of_jobs(cluster) - before) == 2
