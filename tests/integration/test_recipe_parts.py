"""Parts of the recipes that need torch but no other rank."""

import struct
import threading

import pytest
import torch
from torch import nn
from torchvision import datasets, transforms

from rekindle.recipes import data_sets, rl, training_context
from rekindle.recipes.catalog import Options
from rekindle.recipes.data_sets import DataError, digits, evaluation_batches, load
from rekindle.recipes.dp import CPUDataParallel, validate_peer_access
from rekindle.recipes.models import Shape, build, resnet34
from rekindle.recipes.pipeline import PipelineStrategy, count_micro_batches, split_stages
from rekindle.recipes.training_context import BatchSize, LearningRate
from rekindle.training import process_group
from rekindle.training.drain import Drained, LastStep
from rekindle.training.process_group import World
from small_data import pack_fashion_mnist, write_cifar10, write_fashion_mnist

ALONE = World(0, 0, 1, torch.device("cpu"), None, owned=False)


@pytest.fixture
def small_cifar10(tmp_path, monkeypatch):
    """A directory with a small CIFAR-10, whose checksums torchvision expects."""
    md5 = write_cifar10(tmp_path, per_batch=4)
    monkeypatch.setattr(
        datasets.CIFAR10, "train_list", [[f"data_batch_{n}", md5[f"data_batch_{n}"]] for n in range(1, 6)]
    )
    monkeypatch.setattr(datasets.CIFAR10, "test_list", [["test_batch", md5["test_batch"]]])
    monkeypatch.setattr(datasets.CIFAR10, "meta", {**datasets.CIFAR10.meta, "md5": md5["batches.meta"]})
    return tmp_path


@pytest.mark.parametrize(("model", "side"), [("small-resnet", 32), ("lenet", 28)])
def test_cifar10_is_read_from_its_own_files_in_the_size_that_the_model_needs(small_cifar10, model, side):
    found = load(Options(data="cifar10", data_dir=small_cifar10, model=model), ALONE)
    assert (len(found.train), len(found.test), found.shape) == (20, 4, Shape(10, 3, side))
    for image, label in (found.train[0], found.test[0]):
        assert (image.shape, image.dtype, label in range(10)) == ((3, side, side), torch.float32, True)


def test_a_damaged_cifar10_is_rejected_by_name(small_cifar10):
    batch = small_cifar10 / "cifar-10-batches-py" / "data_batch_3"
    batch.write_bytes(batch.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"CIFAR-10 in .*cifar-10-batches-py is damaged or incomplete"):
        load(Options(data="cifar10", data_dir=small_cifar10), ALONE)


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("train-images-idx3-ubyte", lambda bytes_: bytes_[:-1], "has 3919 values, and its header announces 3920"),
        ("train-images-idx3-ubyte", lambda bytes_: bytes_[:9], "unpack requires"),
        ("train-images-idx3-ubyte", lambda _: b"", "is no IDX file"),
        ("train-images-idx3-ubyte", lambda _: b"<html>not found</html>", "is no IDX file"),
        ("t10k-labels-idx1-ubyte", lambda bytes_: bytes_[:7] + b"\2" + bytes_[8:10], "3 images and 2 labels"),
        ("t10k-labels-idx1-ubyte", lambda bytes_: bytes_[:8] + b"\xff" * 3, "with 256 classes, so it is another set"),
        (
            "train-images-idx3-ubyte",
            lambda _: struct.pack(">IIII", 2051, 5, 2, 2) + bytes(20),
            r"its images are \[2, 2\]",
        ),
    ],
)
def test_a_damaged_fashion_mnist_is_rejected_by_name(tmp_path, file, content, reason):
    write_fashion_mnist(tmp_path, train=5, test=3)
    path = tmp_path / "FashionMNIST" / "raw" / file
    path.write_bytes(content(path.read_bytes()))
    with pytest.raises(DataError, match=rf"Fashion-MNIST in {path.parent} is damaged or incomplete \(.*{reason}"):
        load(Options(data="fashion-mnist", data_dir=tmp_path), ALONE)


def test_fashion_mnist_is_read_from_its_own_files_packed_or_not_as_torchvision_reads_it(tmp_path):
    write_fashion_mnist(tmp_path / "own", train=5, test=3)
    pack_fashion_mnist(tmp_path / "own", tmp_path / "packed")
    seen = [
        load(Options(data="fashion-mnist", data_dir=tmp_path / where, download=True), ALONE)
        for where in ("own", "packed", "own/FashionMNIST/raw")
    ]
    normalize = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.286,), (0.353,))])
    theirs = datasets.FashionMNIST(tmp_path / "own", train=True, transform=normalize)
    for found in seen:
        assert (len(found.train), len(found.test), found.train[0][0].shape) == (5, 3, (1, 28, 28))
        for (image, label), (expected, their_label) in zip(found.train, theirs, strict=True):
            torch.testing.assert_close(image, expected)
            assert label == their_label
    assert str(seen[1]).startswith(
        f"data: Fashion-MNIST from {tmp_path}/packed, 5 images for training and 3 for the test"
    )


def test_a_directory_that_is_named_comes_before_the_package_and_the_package_before_a_download(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.FashionMNIST, "mirrors", ["http://127.0.0.1:9/"])
    monkeypatch.setattr(data_sets, "DEBIAN", tmp_path / "packed")
    write_fashion_mnist(tmp_path / "own", train=5, test=3)
    pack_fashion_mnist(tmp_path / "own", tmp_path / "packed")
    named = load(Options(data="fashion-mnist", data_dir=tmp_path / "own"), ALONE)
    assert str(tmp_path / "own") in named.origin
    packed = load(Options(data="fashion-mnist", data_dir=tmp_path / "none", download=True), ALONE)
    assert str(tmp_path / "packed") in packed.origin


def test_another_set_in_the_same_files_is_not_taken_for_fashion_mnist(tmp_path, monkeypatch):
    monkeypatch.setattr(data_sets, "_PER_CLASS", 2)
    write_fashion_mnist(tmp_path, train=20, test=3)
    with pytest.raises(DataError, match="its classes differ in size, so it is another set, such as MNIST"):
        load(Options(data="fashion-mnist", data_dir=tmp_path), ALONE)


@pytest.mark.skipif(not data_sets.DEBIAN.is_dir(), reason="dataset-fashion-mnist is not installed")
def test_the_package_of_debian_has_the_whole_of_fashion_mnist(tmp_path):
    found = load(Options(data="fashion-mnist", data_dir=tmp_path), ALONE)
    assert (len(found.train), len(found.test)) == (60_000, 10_000)
    assert torch.bincount(found.train.tensors[1]).tolist() == [6000] * 10
    assert "one of these is 0.01 points of accuracy, which compares with published results" in str(found)


def test_a_failed_download_is_reported_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.FashionMNIST, "mirrors", ["http://127.0.0.1:9/"])
    monkeypatch.setattr(data_sets, "DEBIAN", tmp_path / "not installed")
    reason = (
        r"Fashion-MNIST could not be downloaded to .* \(.*Connection refused.*`apt-get install dataset-fashion-mnist`"
    )
    with pytest.raises(DataError, match=reason):
        load(Options(data="fashion-mnist", data_dir=tmp_path, download=True), ALONE)


@pytest.mark.parametrize("data", ["fashion-mnist", "cifar10"])
def test_missing_data_is_reported_with_the_directory_and_the_remedy(tmp_path, data, monkeypatch):
    monkeypatch.setattr(data_sets, "DEBIAN", tmp_path / "not installed")
    with pytest.raises(DataError, match=rf"is not in {tmp_path}.*--data-dir.*--download"):
        load(Options(data=data, data_dir=tmp_path), ALONE)


@pytest.mark.parametrize("name", ["small-resnet", "resnet34", "lenet", "convnet", "transformer"])
def test_every_model_accepts_the_images_that_are_loaded_for_it(name):
    found = load(Options(model=name), ALONE)
    model = build(name, found.shape).eval()
    assert model(found.test[:2][0]).shape == (2, 10)


def test_lenet_has_the_layers_of_the_tutorial():
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
    assert [sizes[index] for index in (0, 2, 3, 5, 6)] == [(20, 26, 26), (20, 13, 13), (50, 9, 9), (50, 4, 4), (800,)]


def test_resnet34_has_the_parameters_of_the_original_but_for_its_stem_which_keeps_the_size_of_the_image():
    model = resnet34(10)
    assert model[:3](torch.zeros(2, 3, 32, 32)).shape == (2, 64, 32, 32)
    count = sum(parameter.numel() for parameter in model.parameters())
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


def test_ten_thousand_test_samples_on_three_ranks_are_divided_as_evenly_as_possible_or_padded():
    def shares(how):
        loaders = [evaluation_batches(range(10_000), how, rank=r, ranks=3, workers=0) for r in range(3)]
        return sorted(sum(len(batch) for batch in loader) for loader in loaders)

    assert shares("exact") == [3333, 3333, 3334]
    assert shares("padded") == [3334, 3334, 3334]


def test_more_ranks_than_test_samples_are_refused():
    with pytest.raises(DataError, match="the test set has 2 samples, and each of 3 ranks needs one"):
        evaluation_batches(range(2), "exact", rank=0, ranks=3, workers=0)


def test_train_images_limits_the_training_set_alone():
    whole, part = load(Options(), ALONE), load(Options(train_images=100), ALONE)
    assert (len(part.train), len(part.test)) == (100, 359)
    assert torch.equal(part.train[99][0], whole.train[99][0])
    assert len(load(Options(train_images=5000), ALONE).train) == 1438


@pytest.mark.parametrize(("end", "way"), [(Drained(3), "leave"), (LastStep(), "leave"), (ValueError(), "abort")])
def test_a_recipe_waits_for_the_other_ranks_unless_it_has_failed(monkeypatch, end, way):
    ways = []
    monkeypatch.setattr(process_group, "join", lambda *_: None)
    monkeypatch.setattr(process_group, "leave", lambda _: ways.append("leave"))
    monkeypatch.setattr(process_group, "abort", lambda _: ways.append("abort"))
    with pytest.raises(type(end)), training_context.process_group():
        raise end
    assert ways == [way]


def test_data_parallel_rejects_gpus_without_a_link_and_names_them():
    validate_peer_access(2, lambda one, other: True)
    validate_peer_access(1, lambda one, other: False)
    with pytest.raises(RuntimeError, match="links between all 3 GPUs, and there is none from 0 to 2, 2 to 0 "):
        validate_peer_access(3, lambda one, other: {one, other} != {0, 2})


def test_stages_hold_every_layer_once_under_its_own_name():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    stages = [[name for name, _ in split_stages(model, rank, 3).named_children()] for rank in range(3)]
    assert stages == [["0", "1", "2"], ["3", "4"], ["5"]]
    with pytest.raises(ValueError, match="the model has 3 layers, too few for a pipeline of 4 ranks"):
        split_stages(model, 0, 4)


@pytest.mark.parametrize(("samples", "maximum", "count"), [(128, 4, 4), (79, 4, 1), (78, 4, 3), (2, 4, 2)])
def test_micro_batches_have_the_same_size(samples, maximum, count):
    assert count_micro_batches(samples, maximum) == count


def test_a_leaning_pole_falls_and_a_push_moves_its_cart():
    state = torch.tensor([[0.0, 0.0, 0.1, 0.0]]).repeat(2, 1)
    for _ in range(5):
        state = rl.move_carts(state, torch.tensor([0, 1]))
    left, right = state
    assert left[1] < 0 < right[1]
    assert left[2] > 0.1 > right[2]
    assert rl.has_fallen(torch.tensor([[2.3, 0, 0.2, 0], [2.5, 0, 0, 0], [0, 0, -0.22, 0]])).tolist() == [
        False,
        True,
        True,
    ]


def test_a_stage_with_a_layer_that_was_never_used_is_restored_as_it_was():
    def new_stage():
        torch.manual_seed(0)
        stage = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        method, optimizer = PipelineStrategy(), torch.optim.AdamW(stage.parameters())
        method.wrap(stage, ALONE)
        return stage, optimizer, method.stateful_parts(stage, {"optimizer": optimizer})

    stage, optimizer, (model, parts) = new_stage()
    stage[0](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    again, its_optimizer, (its_model, its_parts) = new_stage()
    its_model.load_state_dict(model.state_dict())
    its_parts["optimizer"].load_state_dict(parts["optimizer"].state_dict())
    assert all(torch.equal(one, other) for one, other in zip(stage.parameters(), again.parameters(), strict=True))
    assert set(its_optimizer.state) == set(again[0].parameters())
    assert torch.equal(its_optimizer.state[again[0].weight]["exp_avg"], optimizer.state[stage[0].weight]["exp_avg"])
    with pytest.raises(KeyError, match=r"1\.weight"):
        its_model.load_state_dict({"0.weight": stage[0].weight, "0.bias": stage[0].bias})


@pytest.mark.parametrize(
    ("options", "ranks", "global_batch", "scale", "printed"),
    [
        (Options(batch_size_per_rank=64), 3, 192, 3, "global batch 192 = 3 ranks x 64"),
        (Options(batch_size=64), 3, 64, 1, "global batch 64 = 3 ranks x 21 or 22"),
        (Options(), 2, 128, 1, "global batch 128 = 2 ranks x 64"),
        (Options(), 1, 128, 1, "global batch 128, not divided"),
    ],
)
def test_only_a_batch_size_per_rank_scales_the_global_batch_with_the_ranks(
    options, ranks, global_batch, scale, printed
):
    batch = BatchSize(options, ranks)
    assert (batch.global_batch, batch.scale, str(batch)) == (global_batch, scale, printed)


def test_the_samples_of_an_epoch_are_counted_though_its_last_batches_are_smaller():
    batch = BatchSize(Options(), data_parallel_size=2)
    assert batch.samples_in_last(12, 1438) == 1438  # not 12 * 128
    assert batch.samples_in_last(2, 1438) == 158
    assert batch.samples_in_last(0, 1438) == 0


@pytest.mark.parametrize(
    ("options", "scale", "times", "expected"),
    [
        ({"lr_rule": "none"}, 4, [(0, 0)], [0.1]),
        ({"lr_rule": "linear"}, 4, [(0, 0)], [0.4]),
        ({"lr_rule": "sqrt"}, 4, [(0, 0)], [0.2]),
        (
            {"lr": 0.8, "warmup_steps": 4, "lr_steps": (9,)},
            1,
            [(step, 0) for step in range(6)],
            [0.2, 0.4, 0.6, 0.8, 0.8, 0.8],
        ),
        (
            {"lr_steps": (2, 3, 5), "epochs": 6},
            1,
            [(100, epoch) for epoch in range(6)],
            [0.1, 0.1, 0.01, 0.001, 0.001, 0.0001],
        ),
        ({"epochs": 4}, 1, [(0, epoch) for epoch in range(4)], [0.1, 0.085355, 0.05, 0.014645]),
    ],
    ids=["no rule", "linear", "square root", "warm-up", "a tenth at each milestone", "else a cosine"],
)
def test_the_learning_rate_follows_the_batch_the_step_and_the_epoch(options, scale, times, expected):
    rate = LearningRate(Options(**options), scale=scale)
    assert [rate.at(step, epoch) for step, epoch in times] == pytest.approx(expected, rel=1e-4)


def test_data_parallel_on_cpu_slots_computes_a_chunk_in_each_of_its_threads():
    threads = set()

    class Noting(nn.Linear):
        def forward(self, batch):
            threads.add((threading.get_ident(), len(batch)))
            return super().forward(batch)

    def trained(wrap):
        torch.manual_seed(0)
        model = nn.Sequential(Noting(4, 3), nn.BatchNorm1d(3))
        wrapped = wrap(model)
        for _ in range(2):
            wrapped(torch.randn(8, 4)).square().sum().backward()
        gradients = [parameter.grad.clone() for parameter in model.parameters()]
        with torch.no_grad():
            output = wrapped.eval()(torch.ones(3, 4))
        assert not output.requires_grad
        return gradients, list(model.state_dict().values()), [output]

    twice = [trained(lambda model: CPUDataParallel(model, 2)) for _ in range(2)]
    assert {size for _, size in threads} == {4, 2, 1}
    assert len({thread for thread, _ in threads}) >= 2
    for one, other in zip(*twice, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    alone, plain = trained(lambda model: CPUDataParallel(model, 1)), trained(lambda model: model)
    for one, other in zip(alone, plain, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
