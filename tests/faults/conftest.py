from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.faulty_run import FaultyRun

Begin = Callable[..., FaultyRun]


@pytest.fixture
def prepare(tmp_path: Path) -> Iterator[Begin]:
    """Makes runs without starting their keepers; whatever the test does, nothing of them is left running."""
    runs: list[FaultyRun] = []

    def make(script: str, *args: str, **spec: Any) -> FaultyRun:
        runs.append(FaultyRun(tmp_path / f"run{len(runs) + 1}", script, *args, **spec))
        return runs[-1]

    yield make
    for run in runs:
        run.close()


@pytest.fixture
def begin(prepare: Begin) -> Begin:
    """Makes a run and starts its keeper."""

    def make(script: str, *args: str, **spec: Any) -> FaultyRun:
        run = prepare(script, *args, **spec)
        run.start()
        return run

    return make


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Digest of the weights that ``ddp.py`` must end with, whatever happens to it."""
    run = FaultyRun(tmp_path_factory.mktemp("undisturbed") / "run", "ddp.py")
    run.start(cold=True)
    try:
        assert run.finish() == "succeeded"
        return run.weights()
    finally:
        run.close()
