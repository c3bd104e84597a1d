"""The ddp recipe, as it stands in the README."""

import re

import pytest

from plain_torchrun import cold_torchrun, torchrun
from rekindle.recipes import ddp

SHORT = ["--epochs", "5"]
PROGRESS = re.compile(
    r"\[rank (\d)\] epoch (\d+) \| batch 64 \| steps (\d+) \| lr 0\.\d{4} \| loss \d+\.\d{4} \| acc (\d+\.\d)%"
)


@pytest.mark.soak
def test_the_recipe_learns_the_digits_says_how_it_goes_and_has_nothing_to_do_when_started_again(tmp_path):
    ended = cold_torchrun(2, ["-m", "rekindle.recipes.ddp", *SHORT], tmp_path)
    assert ended.code == 0, ended.output
    progress = [(int(rank), int(epoch), int(step)) for rank, epoch, step, _ in PROGRESS.findall(ended.output)]
    assert sorted(progress) == [(rank, epoch, 12) for rank in range(2) for epoch in range(5)]
    assert min(map(float, re.findall(r"test accuracy (\d\.\d+)", ended.output))) >= 0.95
    weights = re.findall(r"weights sha256 ([0-9a-f]{64})", ended.output)
    assert len(weights) == 2
    assert len(set(weights)) == 1
    again = torchrun(2, [ddp.__file__, *SHORT], tmp_path)
    assert again.code == 0, again.output
    assert PROGRESS.findall(again.output) == []
    assert re.findall(r"weights sha256 ([0-9a-f]{64})", again.output) == weights
