"""A step that no attempt has computed is refused, with the steps that can be replayed, if there are some."""

from pathlib import Path

import pytest

from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.jobs.replay import Additions, Steps, replay_of
from rekindle_service.store.tables import Job
from rekindle_service.submission import SubmissionError


@pytest.mark.parametrize(
    ("last_step", "rule"),
    [(None, "must be a step that job 7 has computed"), (20, "must be a step that job 7 has computed, from 1 to 20")],
)
def test_a_step_that_was_not_computed_is_refused_with_the_range(
    tmp_path: Path, last_step: int | None, rule: str
) -> None:
    attempts = [AttemptInfo(1, run=1, last_step=last_step)]
    with pytest.raises(SubmissionError) as refused:
        replay_of(Job(id="k3v9x2m1qa", number=7), RunDir(tmp_path), attempts, Steps(21, 21), None, Additions())
    (error,) = refused.value.errors
    assert (error.field, error.rule, error.value) == ("step", rule, 21)
