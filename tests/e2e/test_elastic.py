"""What another number of ranks may not change: the samples and their order, and with virtual shards no single bit."""

import json
from collections import Counter

import pytest
import torch

from plain_torchrun import SCRIPTS, history, lines, snapshot_steps, torchrun

LENGTH, EPOCHS, STEPS = 203, 3, 21
ELASTIC = str(SCRIPTS / "elastic.py")
ROUNDED = ("--method", "replicas", "--norm", "group", "--dropout", "0")  # ranks differ in nothing but rounding


@pytest.fixture
def train(recipes):
    """Trains on some ranks in a directory, to the end or until one kills itself after some steps of its launch."""

    def run(directory, count, *args, kill=None):
        trained = recipes.run_module(directory, "elastic", count, *args, kill=kill)
        if kill is None:
            assert trained.codes == [0] * count, "\n".join(trained.outputs)
        else:
            assert trained.codes[kill[0]] == -9
        return directory

    return run


def result(directory):
    """Digest of weights, buffers and optimizer; and the logged loss of every step."""
    found = json.loads((directory / "digest.json").read_text())
    assert found["step"] == STEPS
    losses = dict(lines(directory / "losses.jsonl"))
    assert sorted(losses) == list(range(1, STEPS + 1))
    return found["weights"], losses


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(("--optimizer", "sgd", "--norm", "batch"), marks=pytest.mark.soak),
        pytest.param(("--optimizer", "adamw", "--norm", "group", "--workers", "2"), marks=pytest.mark.soak),
        ("--optimizer", "adamw", "--norm", "batch", "--shards", "6"),  # no power of two; uneven on four ranks
    ],
    ids=["sgd", "adamw-workers", "six-shards"],
)
def test_with_virtual_shards_every_world_size_and_every_change_of_it_ends_with_the_same_bits(train, tmp_path, args):
    alone = result(train(tmp_path / "1", 1, *args))
    for count in (2, 4):
        assert result(train(tmp_path / str(count), count, *args)) == alone
    train(tmp_path / "changing", 4, *args, kill=(2, 5))
    train(tmp_path / "changing", 1, *args, kill=(0, 6))
    before = snapshot_steps(tmp_path / "changing")[-1]
    assert before % 7 != 0  # in the middle of an epoch
    assert result(train(tmp_path / "changing", 2, *args)) == alone
    assert {4, 1, 2} == {int(each.name.split("-")[1]) for each in (tmp_path / "changing").glob("samples-*.jsonl")}


def test_without_virtual_shards_the_last_bits_depend_on_the_world_size(train, tmp_path):
    alone, divided = (result(train(tmp_path / str(count), count, *ROUNDED)) for count in (1, 2))
    assert alone[0] != divided[0]
    assert alone[1] == pytest.approx(divided[1], rel=1e-3)


def test_another_number_of_shards_is_refused_and_so_are_more_ranks_than_shards(recipes, train, tmp_path):
    train(tmp_path, 1, "--shards", "2", kill=(0, 5))
    other = recipes.run_module(tmp_path, "elastic", 1, "--shards", "4")
    assert "the snapshot was trained with virtual_shards=2, and DeterministicElastic now has 4" in other.outputs[0]
    more = recipes.run_module(tmp_path, "elastic", 3, "--shards", "2")
    assert "2 virtual shards are too few for 3 ranks: start at most 2" in more.outputs[0]
    assert 0 not in other.codes + more.codes


def test_three_uneven_ranks_have_the_gradient_of_one_process(train, tmp_path):
    alone, uneven = (
        torch.load(train(tmp_path / str(count), count, *ROUNDED) / "gradient.pt", weights_only=True) for count in (1, 3)
    )
    assert {len(ids) for _, _, ids in lines(tmp_path / "3" / "samples-3-0.jsonl")} == {10, 7}
    for one, other in zip(alone, uneven, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_the_recipe_with_virtual_shards_trains_the_same_bits_on_any_number_of_ranks(recipes, tmp_path):
    args = ("--epochs", "1", "--batch-size", "240", "--accumulate", "2", "--deterministic-elastic", "2")
    alone, divided = (recipes.run(tmp_path / str(count), "ddp", count, *args) for count in (1, 2))
    assert (alone.codes, divided.codes) == ([0], [0, 0]), alone.outputs + divided.outputs
    assert alone.weights == divided.weights


def take_samples(directory, count, number):
    """The samples of the launch that has just ended; its lists are put away, so that the next one's are its own."""
    kept = directory / f"launch-{number}"
    kept.mkdir()
    for rank in range(count):
        (directory / f"samples-{count}-{rank}.jsonl").rename(kept / f"samples-{rank}.jsonl")
    return history(kept, count)


def test_a_training_on_two_then_one_then_three_then_two_ranks_is_the_training_on_two(train, tmp_path):
    constant, changing = train(tmp_path / "constant", 2, *ROUNDED), tmp_path / "changing"
    expected = take_samples(constant, 2, 0)
    trained, ends = {}, []
    for number, (count, fault, workers) in enumerate(
        [(2, "1:6:SIGKILL", "0"), (1, "0:10:SIGTERM", "2"), (3, "2:18:SIGKILL", "0"), (2, None, "0")]
    ):
        faults = {} if fault is None else {"FAULT": fault}
        ended = torchrun(count, [ELASTIC, *ROUNDED, "--workers", workers], changing, **faults)
        assert (ended.code == 0) == (fault is None), ended.output
        found = take_samples(changing, count, number)
        assert min(found) == (ends[-1] + 1 if ends else 1)
        trained = {**{step: trained[step] for step in range(1, min(found))}, **found}
        ends.append(snapshot_steps(changing)[-1])
    assert [end % 7 != 0 for end in ends[:-1]] == [True] * 3  # each in the middle of an epoch
    assert trained == expected
    used = {epoch: Counter() for epoch in range(EPOCHS)}
    for epoch, ids in trained.values():
        used[epoch].update(ids)
    assert used == {epoch: Counter(range(LENGTH)) for epoch in range(EPOCHS)}
    assert result(changing)[1] == pytest.approx(result(constant)[1], rel=1e-3)
    last = [json.loads((directory / "digest.json").read_text())["accuracy"][-1] for directory in (changing, constant)]
    assert last[0] == pytest.approx(last[1], abs=0.5 / LENGTH)
