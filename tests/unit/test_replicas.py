"""Replicas are compared by a sample of their weights: no two that train apart pass, and nothing else is reported."""

import copy

import pytest
import torch
from torch import nn

from rekindle.training.snapshots.replicas import differing_ranks, sample_weights


def network(width: int = 16) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.Flatten(), nn.Linear(width * 36, 10))


def train(model: nn.Module, seed: int, lr: float = 0.01, steps: int = 2) -> nn.Module:
    torch.manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 1, 8, 8)).square().sum().backward()
        optimizer.step()
    return model


def differing(*models: nn.Module) -> list[int]:
    return differing_ranks([sample_weights(model) for model in models])


def test_replicas_that_train_apart_are_named_and_those_that_train_the_same_are_not() -> None:
    same = [train(network(), seed=1) for _ in range(2)]
    assert differing(*same, train(network(), seed=2), same[0], train(network(), seed=3)) == [2, 4]


@pytest.mark.parametrize("change", ["buffers", "rounding", "frozen", "layout", "not finite", "no parameters"])
def test_what_ranks_may_hold_differently_is_no_disagreement(change: str) -> None:
    one = train(network(), seed=1)
    other = copy.deepcopy(one)
    with torch.no_grad():
        match change:
            case "buffers":
                other.get_buffer("1.running_mean").add_(1)
            case "rounding":
                for parameter in other.parameters():
                    parameter.add_(torch.randn_like(parameter) * 1e-7)
            case "frozen":
                for model in (one, other):
                    model.get_submodule("0").requires_grad_(requires_grad=False)
                other.get_parameter("0.weight").add_(1)
            case "layout":
                other = network(width=8)
            case "not finite":
                one.get_parameter("0.weight").fill_(torch.nan)
                for parameter in other.parameters():
                    parameter.fill_(torch.nan)
            case "no parameters":
                one, other = nn.Flatten(), nn.Linear(2, 2)
    assert differing(one, other) == []


def test_a_sample_is_small_and_takes_no_copy_of_a_large_tensor() -> None:
    sample = sample_weights(nn.Sequential(*(nn.Linear(64, 64) for _ in range(500))))
    assert sample is not None
    assert sample.values.numel() <= 128 * 8
    turned = nn.Linear(4, 3)
    turned.weight = nn.Parameter(torch.arange(12.0).reshape(4, 3).T)
    seen = sample_weights(turned)
    assert seen is not None
    assert seen.values[:4].tolist() == [0.0, 3.0, 6.0, 9.0]


def test_one_layer_that_is_trained_apart_is_noticed() -> None:
    one = train(network(), seed=1)
    other = copy.deepcopy(one)
    with torch.no_grad():
        other.get_parameter("3.weight").mul_(1.01)
    assert differing(one, other) == [1]
