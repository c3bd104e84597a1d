"""Models divided among the ranks: each saves its own shards, and any number of ranks, divided anyhow, continues."""

import json
import shutil

import pytest
import torch

from rekindle.training.export import export


@pytest.fixture(scope="module")
def on_two_ranks(recipes, tmp_path_factory):
    """The directory of a training of three steps."""
    directory = tmp_path_factory.mktemp("sharded")
    ended = recipes.run_module(directory, "sharded", 2)
    assert ended.codes == [0, 0], ended.outputs
    return directory


@pytest.fixture
def train(recipes, on_two_ranks, tmp_path):
    """Continues that training, or starts a new one with the weights from a file."""
    shutil.copytree(on_two_ranks, tmp_path, dirs_exist_ok=True)

    def run(count, *args):
        return recipes.run_module(tmp_path, "sharded", count, *args)

    return run


@pytest.fixture
def state(tmp_path):
    def load(name):
        return torch.load(tmp_path / name, weights_only=True)

    return load


def flat(state, place=""):
    """Every tensor and number of a state, by its place in it."""
    if isinstance(state, dict | list):
        items = state.items() if isinstance(state, dict) else enumerate(state)
        return {name: item for key, value in items for name, item in flat(value, f"{place}/{key}").items()}
    return {place: state}


def assert_same_bits(one, other):
    one, other = flat(one), flat(other)
    assert list(one) == list(other)
    for place, item in one.items():
        same = torch.equal(item, other[place]) if isinstance(item, torch.Tensor) else item == other[place]
        assert same, place


def elements_in_shards(directory):
    """Elements of the model that all ranks together have saved."""
    shards = [torch.load(path, weights_only=True) for path in directory.glob("shards-*.pt")]
    return sum(tensor.numel() for own in shards for place, (_, tensor) in own.items() if place[0] == "model")


def test_any_number_of_ranks_sharded_anyhow_continues_with_the_same_bits(train, state, tmp_path):
    trained = 3
    for count, way, epochs in ((3, "fsdp", 1), (1, "fsdp", 1), (4, "both", 2), (4, "hybrid", 3), (2, "fsdp", 3)):
        ended = train(count, "--way", way, "--epochs", str(epochs))
        assert ended.codes == [0] * count, ended.outputs
        assert_same_bits(state(f"restored-{count}-{way}.pt"), state(f"trained-{trained}.pt"))
        trained = 3 * epochs
    whole = state("trained-3.pt")
    assert len(whole["optimizer"]["state"]) == 8  # so the optimizer was compared too
    elements = sum(item.numel() for item in whole["model"].values() if item.dim())
    for step in (6, 9):  # on four ranks, of which two have the same shards
        assert elements_in_shards(tmp_path / "snapshots" / f"{step:012d}") == elements


def test_each_rank_writes_its_own_part_and_the_manifest_lists_it(on_two_ranks):
    latest = on_two_ranks / "snapshots" / "000000000003"
    files = json.loads((latest / "manifest.json").read_text())["files"]
    assert sorted(files) == ["model.pt", "rank-0.pt", "rank-1.pt", "shards-0.pt", "shards-1.pt"]
    sizes = [elements_in_shards_of(latest / f"shards-{rank}.pt") for rank in (0, 1)]
    assert max(sizes) < 0.6 * sum(sizes)


def elements_in_shards_of(path):
    return sum(tensor.numel() for _, tensor in torch.load(path, weights_only=True).values())


def test_a_parameter_without_a_gradient_so_far_is_restored_without_a_state_of_its_own(recipes, tmp_path):
    def trained(directory, *epochs):
        for count in epochs:
            ended = recipes.run_module(tmp_path / directory, "sharded", 2, "--spare", "--epochs", str(count))
            assert ended.codes == [0, 0], ended.outputs
        return torch.load(tmp_path / directory / "trained-6.pt", weights_only=True)

    calm, stopped = trained("calm", 2), trained("stopped", 1, 2)
    restored = torch.load(tmp_path / "stopped" / "restored-2-fsdp.pt", weights_only=True)
    assert "6.weight" in restored["model"]
    assert "6.weight" not in restored["optimizer"]["state"]
    assert_same_bits(stopped, calm)


def test_shards_are_exported_whole_and_a_sharded_training_starts_from_the_file(train, state, tmp_path):
    weights = state("trained-3.pt")["model"]
    snapshots = tmp_path / "snapshots"
    export(snapshots, tmp_path / "weights.safetensors", step=None, job_id=None, force=False)
    export(snapshots, tmp_path / "weights.pt", step=3, job_id=None, force=False)
    assert_same_bits(state("weights.pt"), weights)
    shutil.rmtree(snapshots)
    started = train(3, "--epochs", "0", "--start-from", "weights.safetensors")
    assert started.codes == [0] * 3, started.outputs
    assert_same_bits(state("restored-3-fsdp.pt")["model"], weights)


def test_a_damaged_part_of_one_rank_sends_all_of_them_to_the_snapshot_before(train, tmp_path):
    part = tmp_path / "snapshots" / "000000000003" / "shards-1.pt"
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    ended = train(1)
    assert ended.codes == [0], ended.outputs
    assert "snapshot 3 skipped: shards-1.pt fails its checksum" in ended.outputs[0]
    assert sorted(ended.snapshots) == [2, 3]  # the last step was trained again


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (("--width", "18"), "of step 3 does not fit this training: model/0.weight has shape (16, 7), and here (18, 7)"),
        (("--forget",), "the snapshot of step 3 has 'optimizer' too, and Run only ['model']"),
    ],
)
def test_shards_that_do_not_fit_are_refused_by_name(train, args, complaint):
    ended = train(1, *args)
    assert ended.codes != [0]
    assert complaint in ended.outputs[0]


@pytest.fixture
def printed(recipes, tmp_path):
    """What each rank prints in a script of things to agree on."""

    def run(count, case):
        ended = recipes.run_module(tmp_path, "agreeing", count, case)
        assert ended.codes == [0] * count, ended.outputs
        return [json.loads(output.splitlines()[-1]) for output in ended.outputs]

    return run


def test_ranks_that_share_a_batch_draw_the_same_random_numbers(printed):
    """A world of another size draws new ones, which are the same on its ranks too."""
    for step, count in enumerate((2, 2, 3)):
        one, *others = printed(count, "draws")
        assert one["step"] == step
        assert others == [one] * (count - 1)


def test_what_goes_wrong_on_one_rank_is_known_to_all(printed):
    one, other = printed(2, "snapshots")
    assert one == other
    assert one["together"] == [True, False]  # half of the memory is enough for each, and not for both
    assert one["restored"] == [10, [20]]
    assert one["problem"] == "on rank 1, an unexpected error: ZeroDivisionError: odd"
