"""The scripts that people have come back unchanged: a rank is killed, the job is drained and resumed, and it finishes.

``--soak 1`` runs every shape; ``python tests/corpus/table.py`` kills all else, too, and compares losses.
"""

from collections.abc import Iterator

import pytest

from corpus.shapes import SHAPES, Shape
from corpus.trial import Lab, lab

MARKS = {"ddp_tutorial": (), "hf_trainer_like": (), "sigterm_exit": pytest.mark.long}
"""By directory; all others run in a soak."""


def cases() -> Iterator[object]:
    """Each shape with its mark."""
    for shape in SHAPES:
        marks = MARKS.get(shape.directory, pytest.mark.soak)
        yield pytest.param(shape, marks=marks, id=f"{shape.directory}-{'added' if shape.added else 'unchanged'}")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("corpus")) as jobs:
        yield jobs


@pytest.mark.parametrize("shape", list(cases()))
def test_a_script_comes_back_from_a_kill_and_from_a_drain_and_is_finished_once(served: Lab, shape: Shape) -> None:
    trial = served.run(shape, ["rank", "drain"])
    assert (trial.state, trial.missing) == ("succeeded", ""), trial
    killed, drained = trial.interruptions
    assert (killed.state, drained.state) == ("running", "queued"), trial
    for each in (killed, drained):
        assert each.after is not None, trial
        assert (each.replayed < shape.before_fault) is shape.resumes, trial
