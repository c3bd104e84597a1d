"""Parts of tensors: found again whatever the cuts were, and refused where they do not make a whole."""

import random
from collections import Counter

import pytest
import torch
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor

from rekindle import Snapshots
from rekindle.contract.run_dir.snapshot_dir import shard_file
from rekindle.training.snapshots.dtensor_io import ShardFiles, ShardSlice, check_coverage, reshard, slices_of

PATH = ("model", "weight")


def cuts(length, pieces, draw):
    inner = sorted(draw.randint(0, length) for _ in range(pieces - 1))
    return list(zip([0, *inner], [*inner, length], strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_any_part_is_read_whatever_the_cuts_were(tmp_path, seed):
    draw = random.Random(seed)
    whole = torch.randn(draw.randint(1, 9), draw.randint(1, 9))
    columns = cuts(whole.shape[1], 3, draw)
    for rank, (left, right) in enumerate(columns):
        torch.save({PATH: ((0, left), whole[:, left:right].clone())}, tmp_path / shard_file(rank))
    files = ShardFiles(tmp_path, 3)
    for _ in range(20):
        top, left = (draw.randrange(length) for length in whole.shape)
        height, width = draw.randint(0, whole.shape[0] - top), draw.randint(0, whole.shape[1] - left)
        part = files.read(PATH, ShardSlice((top, left), (height, width)), whole.dtype)
        assert torch.equal(part, whole[top : top + height, left : left + width])
    held = {"model": {"weight": torch.empty(whole.shape, device="meta")}}
    assert torch.equal(reshard(held, {}, files)["model"]["weight"], whole)


def shard(offset, shape):
    return {PATH: ((offset), torch.zeros(shape))}


@pytest.mark.parametrize(
    ("saved", "complaint"),
    [
        ([shard((0, 0), (2, 3)), shard((2, 0), (2, 3))], None),
        ([shard((0, 0), (4, 1)), shard((0, 1), (4, 2))], None),
        ([shard((0, 0), (2, 3))], "model/weight cover 6 elements, not each of 12 once"),
        ([shard((0, 0), (2, 3)), shard((1, 0), (2, 3))], "model/weight cover 12 elements, not each of 12 once"),
        ([shard((0, 0), (4, 3)), shard((0, 0), (4, 3))], "model/weight cover 24 elements, not each of 12 once"),
        ([shard((0, 0), (4, 3)), {("model", "bias"): ((0,), torch.zeros(1))}], "rank 0 has no model/bias"),
    ],
)
def test_parts_that_do_not_make_the_whole_are_found_before_they_are_needed(saved, complaint):
    found = check_coverage({"model": {"weight": torch.empty(4, 3, device="meta")}}, [slices_of(own) for own in saved])
    assert found is None if complaint is None else complaint in found


def test_what_is_not_sharded_stays_as_it_was():
    state = {"milestones": Counter({3: 1, 5: 2}), "weight": torch.ones(2)}
    assert reshard(state, {})["milestones"] == state["milestones"]


def test_a_part_that_no_file_has_is_named(tmp_path):
    torch.save(shard((0, 0), (2, 3)), tmp_path / shard_file(0))
    with pytest.raises(ValueError, match="6 of 12 elements of model/weight are in none of its shards"):
        ShardFiles(tmp_path, 1).read(PATH, ShardSlice((0, 0), (4, 3)), torch.float32)


@pytest.fixture
def mesh(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield torch.distributed.init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def test_a_script_without_run_saves_sharded_tensors_and_restores_them_whole_or_like_a_layout(mesh, tmp_path):
    whole = torch.arange(12.0).reshape(4, 3)
    state = {"model": {"weight": distribute_tensor(whole, mesh, [Shard(0)]), "scale": torch.ones(1)}}
    assert Snapshots(tmp_path / "snapshots").save(1, 0, state, {}).saved
    restored = Snapshots(tmp_path / "snapshots").restore().shared_state["model"]
    assert torch.equal(restored["weight"], whole)
    layout = {"model": {"weight": distribute_tensor(torch.zeros(4, 3), mesh, [Shard(1)])}}
    divided = Snapshots(tmp_path / "snapshots", layout=lambda: layout).restore().shared_state["model"]
    assert isinstance(divided["weight"], DTensor)
    assert divided["weight"].placements == (Shard(1),)
    assert torch.equal(divided["weight"].full_tensor(), whole)
    assert torch.equal(divided["scale"], torch.ones(1))


def test_a_tensor_that_is_yet_to_be_summed_up_cannot_be_saved(mesh, tmp_path):
    partial = DTensor.from_local(torch.ones(3), mesh, [Partial()])
    with pytest.raises(ValueError, match=r"model/weight is yet to be summed over the ranks .*: redistribute it before"):
        Snapshots(tmp_path / "snapshots").save(1, 0, {"model": {"weight": partial}}, {})


def test_a_validator_checks_the_shards_too(mesh, tmp_path):
    state = {"model": {"weight": distribute_tensor(torch.full((4,), torch.nan), mesh, [Shard(0)])}}
    snapshots = Snapshots(tmp_path / "snapshots")

    def validator(shared):
        found = [name for name, item in shared.get("model", {}).items() if not item.is_meta and item.isnan().any()]
        return f"{found} are bad" if found else None

    snapshots.async_save(1, 0, state, {}, validator=validator)
    assert snapshots.wait().problem == "['weight'] are bad"
