"""Every recipe as a job: submitted from the command line, killed in mid-training, and finished as if nothing had been.

One of them is tried in every run of the tests, all of them on both data sets with ``--soak N``: N kills each.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from cli_process import rekindle
from e2e.serve_process import ServeProcess
from e2e.served_job import ServedJob
from recipe_process import RecipeProcess
from rekindle.contract.run_dir.journal import RecordType
from rekindle_service.client import Client
from small_data import write_fashion_mnist

RANKS = {"single": 1, "dp": 1, "ddp": 2, "fsdp": 2, "scratch": 2, "tensor": 2, "pipeline": 2, "rl": 2}
OPTIONS = ("--epochs", "4", "--throttle", "0.1")
Survives = Callable[..., None]


@pytest.fixture
def survives(server: ServeProcess, client: Client, home: Path, recipes: RecipeProcess, tmp_path: Path) -> Survives:
    """The weights of the job, killed some times, are those of the same ranks that nobody has started as a job."""

    def run(recipe: str, *options: str, kills: int) -> None:
        ranks, own = RANKS[recipe], (*OPTIONS, *options)
        undisturbed = recipes.run(tmp_path / "undisturbed", recipe, ranks, *own)
        assert set(undisturbed.codes) == {0}, undisturbed.outputs
        asked = ("--ranks", str(ranks), "--device", "cpu", "--every-steps", "2", "--env", "OMP_NUM_THREADS=1")
        submitted = rekindle(home, "submit", "--recipe", recipe, *asked, "--output", "id", "--", *own)
        assert submitted.returncode == 0, submitted.stderr
        job = ServedJob(client, home, {"ranks": ranks}, submitted.stdout.strip())
        for attempt in range(1, kills + 1):
            job.reach(attempt=attempt, beyond=job.reach_snapshot())
            job.kill_rank(ranks - 1)
        assert job.finish() == "succeeded"
        assert job.weights() == undisturbed.weights
        assert len(job.records(RecordType.ATTEMPT_STARTED)) == kills + 1

    return run


@pytest.fixture
def fashion(tmp_path: Path) -> tuple[str, ...]:
    write_fashion_mnist(tmp_path / "data", train=200, test=31)
    return "--data", "fashion-mnist", "--data-dir", str(tmp_path / "data"), "--batch-size", "40"


@pytest.mark.soak
def test_a_pipeline_on_fashion_mnist_survives_a_kill_as_a_job(survives: Survives, fashion: tuple[str, ...]) -> None:
    survives("pipeline", *fashion, kills=1)


@pytest.mark.soak
@pytest.mark.parametrize("recipe", RANKS)
def test_every_recipe_survives_kills_as_a_job(survives: Survives, recipe: str, pytestconfig: pytest.Config) -> None:
    size = () if recipe == "rl" else ("--batch-size", "240")
    survives(recipe, *size, kills=pytestconfig.getoption("--soak"))


@pytest.mark.soak
@pytest.mark.parametrize("recipe", [recipe for recipe in RANKS if recipe != "rl"])
def test_every_recipe_survives_kills_on_fashion_mnist(
    survives: Survives, fashion: tuple[str, ...], recipe: str, pytestconfig: pytest.Config
) -> None:
    survives(recipe, *fashion, kills=pytestconfig.getoption("--soak"))
