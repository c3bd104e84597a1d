"""A loss far above its last 100 values is a spike; what falls, rises slowly or stays high is none."""

import math
import random
from collections.abc import Iterable

import pytest

from rekindle.contract.run_dir.rank_records import MetricPoint
from rekindle.training.step_boundary import LossSpikes


def steps(values: Iterable[float], name: str = "loss", first: int = 1) -> list[MetricPoint]:
    return [MetricPoint(step, 0, 0.0, {name: value}) for step, value in enumerate(values, first)]


def noise(count: int, level: float = 1.2) -> list[float]:
    draw = random.Random(0)
    return [draw.gauss(level, 0.1) for _ in range(count)]


def found(values: Iterable[float], deviations: float | None = 10.0, name: str = "loss") -> list[int]:
    spikes = LossSpikes(deviations)
    return [each.step for point in steps(values, name) if (each := spikes.find([point])) is not None]


def test_a_spike_is_named_with_its_step_and_what_was_usual() -> None:
    finding = LossSpikes(10).find(steps([*noise(100), 8.3]))
    assert finding is not None
    assert finding.step == 101
    assert finding.text == "loss spike at step 101: 8.3 where the last 100 values were 1.18 ± 0.1"


@pytest.mark.parametrize(
    "values",
    [
        [*noise(99), 8.3],  # too few before it
        [*noise(200), -50.0, 0.0],  # a fall
        noise(5000),
        [3 + step / 100 for step in range(2000)],
        [0.5] * 500 + [0.53] * 100,  # constant values have a deviation of 1 %
        [*noise(100), math.nan, math.inf],
    ],
    ids=["warm-up", "fall", "noise", "slow rise", "constant", "not finite"],
)
def test_no_spike_is_found_in(values: list[float]) -> None:
    assert found(values) == []


def test_a_new_level_is_one_spike_and_the_next_spike_is_found_above_it() -> None:
    values = [*noise(150), *noise(150, level=6.0), 30.0]
    assert found(values) == [151, 301]
    assert found([-3 - each for each in noise(120)] + [2.0]) == [121], "a loss may be negative"


def test_only_losses_count_and_only_on_request() -> None:
    values = [*noise(100), 8.3]
    assert found(values, name="accuracy") == []
    assert found(values, None) == []
    assert found(values, 100.0) == []
    assert found(values, name="val_Loss") == [101]
    for wrong in (0, -1.0, math.nan):
        with pytest.raises(ValueError, match="loss_spike must be greater than 0"):
            LossSpikes(wrong)
