"""The records of a rank's digests: the same for the same training, and different in what has changed."""

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rekindle.contract.files import read_lines
from rekindle.contract.run_dir.digest_records import DigestNames, StepDigest, TensorKind, pack, unpack
from rekindle.training import rng, step_digests
from rekindle.training.process_group import World
from rekindle.training.sampler import ElasticSampler, TrainingProgress
from rekindle.training.step_digests import DigestRecorder, odd_ranks

ALONE = World(0, 0, 1, torch.device("cpu"), None, owned=False)


def train(path: Path, *, steps: int = 4, interval: int = 2, **change: Any) -> list[StepDigest]:
    """``change``: the seed of the order, a value of a sample, a number that is drawn, the learning rate, a weight."""
    rng.seed_all(5)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=change.get("rate", 0.1))
    data = torch.randn(steps * 4, 3)
    data[9, 0] += change.get("sample", 0)
    progress = TrainingProgress(epochs=1)
    sampler = ElasticSampler(len(data), 4, seed=change.get("seed", 0))
    progress.begin_batches(sampler)
    digests = DigestRecorder(
        ALONE, model, {"optimizer": optimizer}, progress, interval, replicated=True, path=path,
        logged=lambda step: {"loss": 1 / step},
    )  # fmt: skip
    for step, indices in enumerate(list(sampler), start=1):
        digests.begin_step(sampler)
        progress.begin_step(sampler)
        digests.note_batch([data[indices]])
        optimizer.zero_grad()
        model(data[indices]).square().mean().backward()
        if step not in change.get("skipped", ()):
            optimizer.step()
        if step == change.get("draws"):
            random.random()
        if step == change.get("flips"):
            model[2].weight.detach()[0, 0] += 1e-6
        progress.end_step(sampler)
        digests.end_step()
    values = [value for _, value in read_lines(path)]
    assert DigestNames.from_json(values[0]).parameters[0] == "0.weight"
    return [StepDigest.from_json(value) for value in values if "step" in value]


def differing(one: StepDigest, other: StepDigest) -> set[str]:
    mine, yours = one.to_json(), other.to_json()
    mine, yours = mine | mine.pop("tensors"), yours | yours.pop("tensors")
    return {name for name in mine.keys() | yours.keys() if mine.get(name) != yours.get(name)}


def test_the_same_training_has_the_same_records(tmp_path: Path) -> None:
    one, other = train(tmp_path / "one"), train(tmp_path / "other")
    assert [each.step for each in one] == [2, 4]
    assert one == other
    assert one[0].samples == [4, 8]
    assert set(one[0].tensors) == set(TensorKind)
    assert len(unpack(one[0].tensors["parameters"])) == 6
    assert one[0] != one[1]


@pytest.mark.parametrize(
    ("change", "first"),
    [
        ({"seed": 1}, {"order", "batch", "gradients", "parameters", "optimizer", "buffers"}),
        ({"sample": 0.01}, {"batch", "gradients", "parameters", "optimizer", "buffers"}),
        ({"draws": 2}, {"random"}),
        ({"rate": 0.2}, {"parameters"}),
        ({"flips": 2}, {"parameters"}),
    ],
)
def test_a_record_differs_in_what_has_changed(tmp_path: Path, change: dict[str, Any], first: set[str]) -> None:
    clean = train(tmp_path / "one", interval=1)
    changed = train(tmp_path / "other", interval=1, **change)
    found = next(names for one, other in zip(clean, changed, strict=True) if (names := differing(one, other)))
    assert found == first


def test_a_step_without_the_optimizer_has_no_gradients(tmp_path: Path) -> None:
    records = train(tmp_path / "one", skipped=(4,))
    assert ["gradients" in each.tensors for each in records] == [True, False]


def test_records_become_rarer_where_they_take_much_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_digests, "_MAX_BYTES", 1000)
    steps = [each.step for each in train(tmp_path / "one", steps=32, interval=1)]
    assert steps[:2] == [1, 2]
    assert len(steps) < 10
    gaps = [after - before for before, after in pairwise(steps)]
    assert gaps == sorted(gaps)


def test_a_full_disk_ends_no_training(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(IndexError):  # of the test itself, which reads the file
        train(tmp_path / "one")


def test_a_record_that_a_full_disk_has_cut_off_swallows_no_other(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b'{"parameters": ["0.we')
    assert [each.step for each in train(tmp_path / "one")] == [2, 4]


def test_a_rank_that_compares_with_no_other_takes_no_digests_before_a_save(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = TrainingProgress(epochs=1)
    digests = DigestRecorder(
        ALONE, nn.Linear(1, 1), {}, progress, 1, replicated=True, path=None, logged=lambda step: {},
        on_divergence="stop",
    )  # fmt: skip
    monkeypatch.setattr(step_digests.TensorDigests, "take", None)
    digests.check()


@pytest.mark.parametrize(
    ("values", "processors", "odd"),
    [
        ((1, 1, 1), (0, 0, 0), set()),
        ((1, 2, 1), (0, 0, 0), {1}),
        ((1, 2), (0, 0), {0, 1}),
        ((1, 2, 2, 1), (0, 0, 0, 0), {0, 1, 2, 3}),
        ((1, 2), (0, 7), set()),
        ((1, 1, 2, 2, 3), (0, 0, 7, 7, 7), {4}),
    ],
)
def test_ranks_differ_from_most_with_the_same_processor(
    values: tuple[int, ...], processors: tuple[int, ...], odd: set[int]
) -> None:
    assert odd_ranks(values, list(processors)) == odd


def test_packed_digests_are_read_again_and_nothing_else_is() -> None:
    assert unpack(pack([0, -1, 1 << 62])) == [0, (1 << 64) - 1, 1 << 62]
    for text in ("no base64", "AAAA", "é"):
        with pytest.raises(ValueError, match="packed"):
            unpack(text)
