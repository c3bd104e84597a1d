"""A training that is killed ends as one that is not, bit for bit, whatever it is made of.

``--soak N`` runs all combinations of the parts, with N kills in each; the regular run has two, with every part in one.
"""

import random
import re
from itertools import product

import pytest

from faults.conftest import Begin
from faults.faulty_run import FaultyRun
from rekindle.contract.run_dir.journal import RecordType

Combination = tuple[str, str, int, str, int]  # model, optimizer, workers of the loader, extra, ranks

MATRIX: list[Combination] = list(
    product(["cnn", "transformer"], ["sgd", "adamw"], [0, 2], ["scheduler", "amp"], [2, 3])
)
REGULAR: list[Combination] = [
    ("cnn", "sgd", 0, "scheduler", 3),
    ("transformer", "adamw", 2, "amp", 2),
]
KILLS = 2
STEPS, PER_EPOCH, FIRST_SNAPSHOT = 27, 9, 4
IN_MID_EPOCH = [step for step in range(FIRST_SNAPSHOT + 1, STEPS + 1) if step % PER_EPOCH not in (0, 1)]


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "combination",
    [
        pytest.param(each, marks=[] if each in REGULAR else pytest.mark.soak, id="-".join(map(str, each)))
        for each in MATRIX
    ],
)
def test_a_training_killed_at_random_steps_ends_bit_identical(
    begin: Begin, combination: Combination, request: pytest.FixtureRequest
) -> None:
    *parts, ranks = combination
    kills = planned(combination, request.config.getoption("--soak") or KILLS)
    arguments = [str(part) for part in parts]
    calm = begin("combination.py", *arguments, ranks=ranks)
    assert calm.finish() == "succeeded", calm.all_logs()
    killed = begin("combination.py", *arguments, *kills, ranks=ranks, max_failures=len(kills) + 1)
    assert killed.finish() == "succeeded", killed.all_logs()
    assert [outcome["signal"] for outcome in killed.outcomes()] == ["SIGKILL"] * len(kills) + [None]
    resumed = [record.step for record in killed.records(RecordType.RESUMED)]
    print(f"{'-'.join(map(str, combination))}: killed at {' '.join(kills)}, continued from {resumed}")
    assert any(step % PER_EPOCH for step in resumed), "no attempt continued from the middle of an epoch"
    for rank in range(ranks):
        assert losses(killed, rank) == losses(calm, rank)
        assert ends(killed, rank) == ends(calm, rank)


def planned(combination: Combination, count: int) -> list[str]:
    """Where the attempts are to die: each later than the one before."""
    chance = random.Random(repr(combination))
    steps = sorted(chance.sample(IN_MID_EPOCH, min(count, len(IN_MID_EPOCH))))
    places = ["loaded", "behind", "stepped"]
    return [f"{chance.randrange(combination[-1])}:{step}:{chance.choice(places)}" for step in steps]


def losses(run: FaultyRun, rank: int) -> dict[int, set[str]]:
    """The loss of each step to the bit; a step that was trained again must have come out the same."""
    found: dict[int, set[str]] = {}
    for attempt in range(1, run.attempt + 1):
        for step, loss in re.findall(r"^loss (\d+) (\S+)$", run.log(rank, attempt=attempt), re.MULTILINE):
            found.setdefault(int(step), set()).add(loss)
    assert sorted(found) == list(range(1, STEPS + 1))
    return found


def ends(run: FaultyRun, rank: int) -> list[str]:
    """Digests of the weights and all other states, and of the random numbers."""
    found = re.findall(r"^(?:weights|draws) [0-9a-f]{64}$", run.log(rank), re.MULTILINE)
    assert len(found) == 2
    return found
