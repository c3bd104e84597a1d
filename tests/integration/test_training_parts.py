"""The components of a run that need torch but no other rank."""

import random
from itertools import chain

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from rekindle import ElasticSampler
from rekindle.contract.run_dir.rank_records import MetricPoint
from rekindle.training import rng
from rekindle.training.data_loading import KeyedDataset, to_device
from rekindle.training.process_group import World
from rekindle.training.step_boundary import MetricBuffer, weighted_means
from rekindle.training.training_state import capture_metrics, prepare_metrics, restore_metrics

CPU = torch.device("cpu")
ALONE = World(0, 0, 1, CPU, None, owned=False)


def draw():
    return random.random(), float(np.random.random()), torch.rand(3).tolist()


class _Generators:
    """The generators of a rank's GPUs, as ``torch.cuda`` shows them: there is no GPU here."""

    def __init__(self, states):
        self.states = [torch.tensor(state) for state in states]

    def install(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(self.states))
        monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: self.states[device.index].clone())
        monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [state.clone() for state in self.states])
        monkeypatch.setattr(
            torch.cuda, "set_rng_state", lambda state, device: self.states.__setitem__(device.index, state)
        )
        monkeypatch.setattr(
            torch.cuda, "set_rng_state_all", lambda states: self.states.__setitem__(slice(None), states)
        )


@pytest.mark.parametrize(("gpus", "restored"), [([0, 0], [5, 6]), ([0, 0, 0], [0, 6, 0])], ids=["as many", "another"])
def test_the_generators_of_all_gpus_of_a_rank_are_kept_where_it_has_as_many_again(monkeypatch, gpus, restored):
    second = torch.device("cuda", 1)
    _Generators([5, 6]).install(monkeypatch)
    state = rng.capture(second)
    found = _Generators(gpus)
    found.install(monkeypatch)
    rng.restore(state, second)
    assert [int(each) for each in found.states] == restored


def test_random_numbers_continue_where_they_were_saved_in_a_file_that_runs_no_code(tmp_path):
    rng.seed_all(2**64 - 1)
    torch.save(rng.capture(CPU), tmp_path / "rng.pt")
    expected = draw()
    rng.seed_all(5)
    rng.restore(torch.load(tmp_path / "rng.pt", weights_only=True), CPU)
    assert draw() == expected


def batches(world_size, *, epoch=0, position=0, length=101, shuffle=True):
    """The global batches as the ranks of a world see them together."""
    ranks = []
    for rank in range(world_size):
        sampler = ElasticSampler(length, 16, seed=3, rank=rank, world_size=world_size, shuffle=shuffle)
        sampler.set_epoch(epoch)
        sampler.position = position
        ranks.append(list(sampler))
        assert len(sampler) == len(ranks[-1])
    return [list(chain(*shares)) for shares in zip(*ranks, strict=True)]


@pytest.mark.parametrize("world_size", [2, 3, 5])
def test_any_world_size_trains_the_same_batches_in_the_same_order(world_size):
    assert batches(world_size) == batches(1)
    assert sorted(chain(*batches(1))) == list(range(101))


def test_each_epoch_has_its_own_order_and_none_where_none_is_wanted():
    assert batches(1, epoch=0) != batches(1, epoch=1)
    assert list(chain(*batches(1, shuffle=False))) == list(range(101))


def test_an_epoch_continues_after_the_trained_samples_not_after_the_fetched_ones():
    sampler = ElasticSampler(101, 16, seed=3)
    loader = iter(DataLoader(list(range(101)), batch_sampler=sampler, num_workers=0))
    fetched = [next(loader) for _ in range(3)]
    sampler.advance()
    resumed = ElasticSampler(101, 16, seed=3)
    resumed.load_state_dict(sampler.state_dict())
    assert next(iter(resumed)) == fetched[1].tolist()


@pytest.mark.parametrize("other", [{"length": 102}, {"seed": 4}])
def test_a_sampler_refuses_to_continue_in_another_order(other):
    saved = ElasticSampler(101, 16, seed=3).state_dict()
    resumed = ElasticSampler(**{"length": 101, "global_batch": 16, "seed": 3, **other})
    with pytest.raises(ValueError, match=f"{next(iter(other))} .*cannot be resumed exactly"):
        resumed.load_state_dict(saved)


def test_a_batch_too_small_for_the_ranks_is_refused_before_training():
    with pytest.raises(ValueError, match="too few for 4 ranks or shards; the global batch must be at least 8"):
        ElasticSampler(5, 4, world_size=4)


class Augmented(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor([index, *torch.rand(2).tolist(), random.random(), np.random.random()])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_augmentation_is_the_same_whoever_loads_the_sample_and_leaves_no_trace(num_workers):
    keyed = KeyedDataset(Augmented(), seed=1, epoch=2)
    before = rng.capture(CPU)
    loader = DataLoader(keyed, batch_size=3, num_workers=num_workers, generator=torch.Generator())
    loaded = torch.cat(list(loader))
    after = rng.capture(CPU)
    assert (before["python"], before["numpy"]) == (after["python"], after["numpy"])
    assert torch.equal(before["torch"], after["torch"])
    with rng.preserved():
        assert torch.equal(loaded, torch.stack([keyed[index] for index in range(8)]).to(loaded.dtype))
        assert not torch.equal(loaded[0], KeyedDataset(Augmented(), seed=1, epoch=3)[0])


def accuracy():
    metric = MulticlassAccuracy(3, average="micro")
    prepare_metrics(metric, CPU)
    return metric


def test_metrics_of_former_ranks_are_merged_so_that_each_sample_counts_once():
    predictions, labels = torch.randint(3, (60,)), torch.randint(3, (60,))
    former = []
    for rank in range(3):
        metric = accuracy()
        metric.update(predictions[rank::3], labels[rank::3])
        former.append(capture_metrics(metric))
    expected, heir = accuracy(), accuracy()
    expected.update(predictions, labels)
    heir.update(labels, labels)
    restore_metrics(heir, former, CPU)
    assert heir.compute() == expected.compute()
    restore_metrics(heir, [], CPU)
    assert heir.update_count == 0


def test_a_collection_of_metrics_continues_as_if_never_saved(tmp_path):
    def collection():
        metrics = MetricCollection({"acc": MulticlassAccuracy(3), "f1": MulticlassF1Score(3), "loss": MeanMetric()})
        prepare_metrics(metrics, CPU)
        return metrics

    def update(metrics, seed):
        generator = torch.Generator().manual_seed(seed)
        predictions, labels = (torch.randint(3, (20,), generator=generator) for _ in range(2))
        metrics["acc"].update(predictions, labels)
        metrics["f1"].update(predictions, labels)
        metrics["loss"].update(torch.rand(20, generator=generator))

    undisturbed = collection()
    update(undisturbed, 1)
    torch.save(capture_metrics(undisturbed), tmp_path / "metrics.pt")
    resumed = collection()
    restore_metrics(resumed, [torch.load(tmp_path / "metrics.pt", weights_only=True)], CPU)
    for metrics in (undisturbed, resumed):
        update(metrics, 2)
    assert undisturbed.compute() == resumed.compute()


def test_means_are_weighted_by_samples_and_kept_apart_by_step():
    one, two = MetricPoint(1, 0, 1.0, {}), MetricPoint(2, 0, 2.0, {})
    means = weighted_means([(one, 3, {"loss": 1.0}), (two, 1, {"loss": 9.0}), (one, 1, {"loss": 5.0, "lr": 0.1})])
    assert [(point.step, point.values) for point in means] == [(1, {"loss": 2.0, "lr": 0.1}), (2, {"loss": 9.0})]


def test_a_logged_tensor_keeps_the_value_that_it_had_when_it_was_logged():
    buffer = MetricBuffer()
    loss = torch.ones((), requires_grad=True) * 2
    buffer.add(1, 0, 1, {"loss": loss, "lr": 0.5})
    with torch.no_grad():
        loss += 1
    assert [point.values for point in buffer.average(ALONE)] == [{"loss": 2.0, "lr": 0.5}]
    assert buffer.average(ALONE) == []


@pytest.mark.parametrize("value", [torch.zeros(2), "text", None])
def test_only_single_numbers_can_be_logged(value):
    with pytest.raises((ValueError, TypeError)):
        MetricBuffer().add(1, 0, 1, {"loss": value})


def test_a_batch_of_any_shape_goes_to_the_device():
    batch = {"x": torch.zeros(1), "rest": (torch.zeros(2), ["text", torch.zeros(3)])}
    moved = to_device(batch, torch.device("meta"))
    assert moved["x"].is_meta
    assert moved["rest"][1][1].is_meta
    assert moved["rest"][1][0] == "text"
