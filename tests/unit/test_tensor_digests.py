"""Digests of tensors show every changed bit, and depend neither on the place of a tensor nor on its layout."""

import random

import pytest
import torch

from rekindle.training.tensor_digests import TensorDigests

SIZES = [1, 3, 100, 8192, 8193, 20_001]  # below and above that of small ones, even and odd
TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


def digest(tensor: torch.Tensor) -> int:
    return TensorDigests().take([tensor])[0]


def values(size: int, kind: torch.dtype) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(size)).mul(3).to(kind)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", TYPES)
def test_one_changed_bit_changes_the_digest(size: int, kind: torch.dtype) -> None:
    tensor = values(size, kind)
    chance, before, take = random.Random(size), digest(tensor), TensorDigests()
    seen = {before}
    for _ in range(40):
        other = tensor.clone()
        octets = other.view(torch.uint8)
        octets[chance.randrange(octets.numel())] ^= 1 if kind is torch.bool else 1 << chance.randrange(8)
        seen.add(take.take([other])[0])
        assert take.take([other])[0] != before
    assert len(seen) > 1


def test_a_negated_tensor_and_swapped_values_are_other_tensors() -> None:
    tensor = values(20_001, torch.float32)
    swapped = tensor.clone()
    swapped[[5, 9000]] = tensor[[9000, 5]]
    assert len({digest(tensor), digest(-tensor), digest(swapped)}) == 3


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.uint8])
def test_the_place_and_the_company_of_a_tensor_do_not_matter(size: int, kind: torch.dtype) -> None:
    tensor = values(size, kind)
    shifted = torch.cat([tensor[:1], tensor])[1:]  # begins within a word
    before = digest(tensor)
    assert TensorDigests().take([values(7, torch.float64), None, shifted, values(9000, kind)])[2] == before


def test_a_tensor_in_another_memory_format_has_the_same_digest() -> None:
    tensor = torch.randn(4, 30, 20, 10)
    assert digest(tensor) == digest(tensor.contiguous(memory_format=torch.channels_last))


def test_complex_conjugated_empty_and_missing_tensors_have_digests() -> None:
    tensor = torch.randn(5, dtype=torch.complex64)
    assert digest(tensor.conj()) == digest(tensor.conj().resolve_conj()) != digest(tensor)
    assert TensorDigests().take([torch.empty(0), None, torch.ones(())])[:2] == [0, 0]


def test_groups_follow_the_tensors_that_are_given() -> None:
    take = TensorDigests()
    small, other = values(3, torch.float32), values(4, torch.float32)
    assert take.take([small, other]) == take.take([other, small])[::-1] == [digest(small), digest(other)]
