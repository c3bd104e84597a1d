"""Parts of the recipes that need torch but no other rank."""

import pytest
import torch
from torch import nn
from torchvision import datasets

from rekindle.recipes import cart_pole
from rekindle.recipes.data import DataError, Shape, load
from rekindle.recipes.digits import digits
from rekindle.recipes.dp import refuse_unlinked
from rekindle.recipes.evaluation import evaluation_batches
from rekindle.recipes.models import MODELS, build, side_for
from rekindle.recipes.options import Options
from rekindle.recipes.pipeline import equal_portions
from rekindle.recipes.resnet import resnet34
from rekindle.recipes.stages import Stages, cut
from rekindle.training.process_group import World
from small_data import write_cifar10, write_fashion_mnist

ALONE = World(0, 0, 1, torch.device("cpu"), None, owned=False)


@pytest.fixture
def small_cifar10(tmp_path, monkeypatch):
    """A folder with a small CIFAR-10; torchvision is told to expect its checksums."""
    md5 = write_cifar10(tmp_path, per_batch=4)
    monkeypatch.setattr(
        datasets.CIFAR10, "train_list", [[f"data_batch_{n}", md5[f"data_batch_{n}"]] for n in range(1, 6)]
    )
    monkeypatch.setattr(datasets.CIFAR10, "test_list", [["test_batch", md5["test_batch"]]])
    monkeypatch.setattr(datasets.CIFAR10, "meta", {**datasets.CIFAR10.meta, "md5": md5["batches.meta"]})
    return tmp_path


def test_cifar10_is_read_from_its_own_files(small_cifar10):
    found = load(Options(data="cifar10", data_dir=small_cifar10), ALONE)
    assert (len(found.train), len(found.test)) == (20, 4)
    image, label = found.train[0]
    assert (image.shape, image.dtype, label in range(10)) == ((3, 32, 32), torch.float32, True)


def test_a_damaged_cifar10_is_refused_and_named(small_cifar10):
    batch = small_cifar10 / "cifar-10-batches-py" / "data_batch_3"
    batch.write_bytes(batch.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"CIFAR-10 in .*cifar-10-batches-py is damaged or incomplete"):
        load(Options(data="cifar10", data_dir=small_cifar10), ALONE)


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("train-images-idx3-ubyte", lambda bytes_: bytes_[:-1], "3919"),
        ("train-images-idx3-ubyte", lambda _: b"", r"invalid literal for int\(\)"),
        ("train-images-idx3-ubyte", lambda _: b"<html>not found</html>", "could not read it: AssertionError"),
        ("t10k-labels-idx1-ubyte", lambda bytes_: bytes_[:7] + b"\2" + bytes_[8:10], "3 images and 2 labels"),
    ],
)
def test_a_damaged_fashion_mnist_is_refused_and_named(tmp_path, file, content, reason):
    write_fashion_mnist(tmp_path, train=5, test=3)
    path = tmp_path / "FashionMNIST" / "raw" / file
    path.write_bytes(content(path.read_bytes()))
    with pytest.raises(DataError, match=rf"Fashion-MNIST in {path.parent} is damaged or incomplete \(.*{reason}"):
        load(Options(data="fashion-mnist", data_dir=tmp_path), ALONE)


def test_fashion_mnist_is_read_from_its_own_files_in_the_size_that_a_model_needs(tmp_path):
    write_fashion_mnist(tmp_path, train=5, test=3)
    found = load(Options(data="fashion-mnist", data_dir=tmp_path, download=True), ALONE, side=32)
    assert (len(found.train), len(found.test), found.train[0][0].shape) == (5, 3, (1, 32, 32))


def test_a_download_that_fails_is_told_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.FashionMNIST, "mirrors", ["http://127.0.0.1:9/"])
    with pytest.raises(DataError, match=r"Fashion-MNIST could not be downloaded to .* \(.*Connection refused"):
        load(Options(data="fashion-mnist", data_dir=tmp_path, download=True), ALONE)


@pytest.mark.parametrize("data", ["fashion-mnist", "cifar10"])
def test_missing_data_is_told_with_the_place_and_the_way_out(tmp_path, data):
    with pytest.raises(DataError, match=rf"is not in {tmp_path}.*--data-dir.*--download"):
        load(Options(data=data, data_dir=tmp_path), ALONE)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_takes_the_images_that_it_asks_for(name):
    found = load(Options(), ALONE, side=side_for(name))
    model = build(name, found.shape).eval()
    assert model(found.test[:2][0]).shape == (2, 10)


def test_lenet_is_that_of_the_tutorial():
    model = build("lenet", Shape(classes=10, channels=1, side=28))
    assert [tuple(weight.shape) for weight in model.parameters()] == [
        *((20, 1, 3, 3), (20,)),
        *((50, 20, 5, 5), (50,)),
        *((128, 800), (128,)),
        *((10, 128), (10,)),
    ]
    sizes, image = [], torch.zeros(1, 1, 28, 28)
    for layer in model:
        image = layer(image)
        sizes.append(tuple(image.shape[1:]))
    assert [sizes[place] for place in (0, 2, 3, 5, 6)] == [(20, 26, 26), (20, 13, 13), (50, 9, 9), (50, 4, 4), (800,)]


def test_resnet34_begins_at_full_size_where_imagenets_begins_at_a_quarter():
    stem = resnet34(10)[:3]
    assert stem(torch.zeros(2, 3, 32, 32)).shape == (2, 64, 32, 32)


def test_resnet34_has_the_parameters_of_the_original_but_for_its_stem():
    count = sum(parameter.numel() for parameter in resnet34(10).parameters())
    assert count == 21_282_122  # 21,797,672 of the original, with 10 classes and a 3 x 3 stem


def test_the_digits_are_split_the_same_way_every_time_and_no_image_is_in_both_parts():
    (train, test), (again, _) = digits(), digits()
    assert torch.equal(train.tensors[0], again.tensors[0])
    assert (len(train), len(test)) == (1438, 359)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_exact_evaluation_sees_each_sample_once_and_padded_evaluation_repeats_some(ranks):
    samples = list(range(31))

    def seen(how):
        parts = [evaluation_batches(samples, how, rank=r, ranks=ranks, workers=0, batch=5) for r in range(ranks)]
        assert len({len(list(part)) for part in parts}) == 1  # or a model with collectives inside would hang
        return sorted(number for part in parts for batch in part for number in batch.tolist())

    assert seen("exact") == samples
    assert len(seen("padded")) == -(-31 // ranks) * ranks
    assert set(seen("padded")) == set(samples)


def test_data_parallel_refuses_gpus_without_a_link_and_names_them():
    refuse_unlinked(2, lambda one, other: True)
    refuse_unlinked(1, lambda one, other: False)
    with pytest.raises(RuntimeError, match="links between all 3 GPUs, and there is none from 0 to 2, 2 to 0 "):
        refuse_unlinked(3, lambda one, other: {one, other} != {0, 2})


def test_stages_hold_every_layer_once_under_its_own_name():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    stages = [[name for name, _ in cut(model, rank, 3).named_children()] for rank in range(3)]
    assert stages == [["0", "1", "2"], ["3", "4"], ["5"]]
    with pytest.raises(ValueError, match="the model has 3 layers, too few for a pipeline of 4 ranks"):
        cut(model, 0, 4)


@pytest.mark.parametrize(("samples", "wished", "portions"), [(128, 4, 4), (79, 4, 1), (78, 4, 3), (2, 4, 2)])
def test_micro_batches_are_of_one_size(samples, wished, portions):
    assert equal_portions(samples, wished) == portions


def test_a_pole_that_leans_falls_on_and_a_push_moves_its_cart():
    state = torch.tensor([[0.0, 0.0, 0.1, 0.0]]).repeat(2, 1)
    for _ in range(5):
        state = cart_pole.push(state, torch.tensor([0, 1]))
    left, right = state
    assert left[1] < 0 < right[1]
    assert left[2] > 0.1 > right[2]
    assert cart_pole.standing(torch.tensor([[2.3, 0, 0.2, 0], [2.5, 0, 0, 0], [0, 0, -0.22, 0]])).tolist() == [
        True,
        False,
        False,
    ]


def test_a_stage_with_a_layer_that_was_never_used_is_restored_as_it_was():
    def begin():
        torch.manual_seed(0)
        stage = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        method, optimizer = Stages(), torch.optim.AdamW(stage.parameters())
        method.wrap(stage, ALONE)
        return stage, optimizer, method.saved(stage, {"optimizer": optimizer})

    stage, optimizer, (model, parts) = begin()
    stage[0](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    again, its_optimizer, (its_model, its_parts) = begin()
    its_model.load_state_dict(model.state_dict())
    its_parts["optimizer"].load_state_dict(parts["optimizer"].state_dict())
    assert all(torch.equal(one, other) for one, other in zip(stage.parameters(), again.parameters(), strict=True))
    assert set(its_optimizer.state) == set(again[0].parameters())
    assert torch.equal(its_optimizer.state[again[0].weight]["exp_avg"], optimizer.state[stage[0].weight]["exp_avg"])
    with pytest.raises(KeyError, match=r"1\.weight"):
        its_model.load_state_dict({"0.weight": stage[0].weight, "0.bias": stage[0].bias})
