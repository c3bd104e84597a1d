"""Every recipe on real ranks: it survives a kill without a trace, and agrees with those that it should agree with."""

import re
import shutil

import pytest
import torch

from small_data import write_fashion_mnist

EPOCHS, STEPS_PER_EPOCH = 2, 6
SHORT = ("--epochs", "2", "--batch-size", "240")  # a snapshot at every second step
ONCE = ("--epochs", "1", "--batch-size", "240")
KILLED_AT = 9  # in the middle of the second epoch
EACH = {
    "single": (1, "--model", "lenet"),
    "dp": (1, "--model", "lenet"),
    "ddp": (2, "--model", "small-resnet"),
    "fsdp": (2, "--model", "small-resnet"),
    "scratch": (2,),
    "tensor": (2,),
    "pipeline": (2,),
    "rl": (2, "--batch-size-per-rank", "16"),
}
PROGRESS = re.compile(
    r"^\[rank \d\] epoch \d \| batch (240|120) \| steps 6 \| lr \d\.\d{4} \| loss \d+\.\d{4} \| acc \d+\.\d% \| "
    r"(all ranks: loss \d+\.\d{4} \| acc \d+\.\d% \| )?\d+\.\d s \| \d+ samples/s$",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def train(recipes, tmp_path_factory):
    """Runs a recipe that must end well, once for the same arguments; with ``directory`` it continues there."""
    done = {}

    def run(name, ranks, *args, directory=None):
        key = (name, ranks, *args)
        if directory is None and key in done:
            return done[key]
        trained = recipes.run(directory or tmp_path_factory.mktemp(name), name, ranks, *args)
        assert trained.codes == [0] * ranks, "\n".join(trained.outputs)
        if directory is None:
            done[key] = trained
        return trained

    return run


@pytest.fixture
def survives(recipes, train, tmp_path):
    """Trains once undisturbed, and once with a kill; returns the second, and the step from which it resumed."""

    def run(name, ranks, *args):
        undisturbed = train(name, ranks, *args)
        killed = recipes.run(tmp_path / "killed", name, ranks, *args, kill=(ranks - 1, KILLED_AT))
        assert killed.codes[-1] == -9
        assert 0 not in killed.codes
        step = killed.snapshots[-1]
        assert 0 < step < KILLED_AT
        resumed = train(name, ranks, *args, directory=tmp_path / "killed")
        assert resumed.weights == undisturbed.weights
        return resumed, step

    return run


def assert_close(one, other, tolerance=1e-4):
    for mine, theirs in zip(one.tensors(), other.tensors(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", EACH)
def test_a_recipe_killed_in_mid_epoch_ends_with_the_same_weights(survives, name):
    ranks, *args = EACH[name]
    resumed, step = survives(name, ranks, *args, *(("--epochs", "2") if name == "rl" else SHORT))
    if name != "rl":
        epochs = EPOCHS - step // STEPS_PER_EPOCH  # the one that it resumed from is often, not always, the last
        assert [len(PROGRESS.findall(output)) for output in resumed.outputs] == [epochs] * ranks


def test_options_that_change_the_arithmetic_resume_exactly_too(survives):
    half = ("--model", "transformer", "--amp", "fp16", "--accumulate", "2", "--workers", "1")
    schedule = ("--lr-rule", "sqrt", "--warmup-steps", "4", "--lr-steps", "1")
    survives("ddp", 2, "--epochs", "2", "--batch-size-per-rank", "120", *half, *schedule, "--evaluate", "padded")


def test_synchronised_batch_normalisation_resumes_exactly_too(survives):
    survives("ddp", 2, "--sync-batchnorm", "--find-unused-parameters", *SHORT)


@pytest.mark.parametrize(
    ("name", "ranks"), [("ddp", 1), ("ddp", 2), ("ddp", 3), ("ddp", 4), ("fsdp", 2), ("scratch", 2)]
)
def test_ranks_that_divide_a_batch_train_what_one_device_trains(train, name, ranks):
    model = () if name == "scratch" else ("--model", "lenet")
    alone = train("single", 1, "--model", "lenet", *ONCE)
    assert_close(train(name, ranks, *model, *ONCE), alone)


@pytest.mark.parametrize(
    ("name", "model", "ranks"),
    [("tensor", "transformer", 2), ("pipeline", "transformer", 2), ("tensor", "convnet", 2), ("tensor", "convnet", 4)],
)
def test_ranks_that_divide_a_model_train_what_one_device_trains(train, name, model, ranks):
    alone = train("single", 1, "--model", model, *ONCE)
    assert_close(train(name, ranks, "--model", model, *ONCE), alone)


def test_a_convolution_whose_channels_are_divided_resumes_exactly(survives):
    survives("tensor", 2, "--model", "convnet", *SHORT)


def test_each_rank_prints_its_own_test_samples_and_those_of_all(train):
    outputs = train("ddp", 3, "--model", "lenet", *ONCE).outputs
    found = [
        re.findall(r"test \| exact \| (\d+) / (\d+) = .* all ranks: (\d+) / (\d+) = ", each)[-1] for each in outputs
    ]
    own, (all_ranks,) = [tuple(map(int, each[:2])) for each in found], {tuple(map(int, each[2:])) for each in found}
    assert tuple(map(sum, zip(*own, strict=True))) == all_ranks
    assert all_ranks[1] == 359


def test_all_ways_to_add_up_gradients_agree_with_ddp_even_on_three_ranks(train):
    ddp = train("ddp", 3, "--model", "lenet", *ONCE)
    for way in ("naive", "ring", "bucketed"):
        assert_close(train("scratch", 3, "--all-reduce", way, *ONCE), ddp)


def test_micro_batches_of_a_step_add_up_to_the_step(train):
    whole = train("ddp", 2, "--model", "lenet", *ONCE)
    for name in ("ddp", "fsdp"):
        assert_close(train(name, 2, "--model", "lenet", "--accumulate", "3", *ONCE), whole)


def test_batch_normalisation_is_that_of_one_device_only_where_it_is_synchronised(train):
    once = ("--epochs", "1", "--batch-size", "720")
    alone = train("single", 1, *once)
    assert_close(train("ddp", 2, "--sync-batchnorm", *once), alone, tolerance=1e-3)
    with pytest.raises(AssertionError, match="not close"):
        assert_close(train("ddp", 2, *once), alone, tolerance=1e-3)


def test_exact_evaluation_is_the_same_on_any_number_of_ranks_and_padded_evaluation_is_not(train, tmp_path):
    args = ("--model", "lenet", *ONCE)
    alone = train("ddp", 1, *args)
    found = {}
    for how in ("exact", "padded"):
        for ranks in (1, 2, 3, 4):
            directory = shutil.copytree(alone.directory, tmp_path / f"{how}-on-{ranks}")
            found[how, ranks] = train("ddp", ranks, "--evaluate", how, *args, directory=directory).accuracy
    assert {found["exact", ranks] for ranks in (1, 2, 3, 4)} == {alone.accuracy}
    assert found["padded", 1] == alone.accuracy
    assert alone.accuracy not in {found["padded", ranks] for ranks in (2, 3, 4)}


def test_batch_and_learning_rate_are_printed_at_the_start(train):
    args = ("--batch-size-per-rank", "240", "--lr-rule", "linear", "--model", "lenet", "--epochs", "1")
    assert "global batch 480 = 2 ranks x 240 | lr 0.2000 | " in train("ddp", 2, *args).outputs[0]


def test_shuffling_changes_what_is_learnt(train):
    args = ("--model", "lenet", *ONCE)
    assert train("single", 1, *args).weights != train("single", 1, "--no-shuffle", *args).weights


def test_fashion_mnist_in_its_own_format_is_trained(train, tmp_path):
    write_fashion_mnist(tmp_path / "data", train=200, test=31)
    args = ("--data", "fashion-mnist", "--data-dir", str(tmp_path / "data"), "--model", "lenet")
    trained = train("ddp", 2, *args, "--epochs", "1", "--batch-size", "40", "--workers", "1")
    assert "steps 5 " in trained.outputs[0]


def test_a_policy_learns_to_balance_the_pole(train):
    lengths = re.findall(r"mean length (\d+\.\d)", train("rl", 2, "--epochs", "6").outputs[0])
    assert max(map(float, lengths)) > 3 * 20  # pushed at random, a pole stands for about 20 ticks


def test_a_training_that_diverges_stops_and_says_why(recipes, tmp_path):
    diverged = recipes.run(tmp_path, "ddp", 1, "--lr", "1e30", "--model", "lenet", *SHORT)
    assert diverged.codes == [1]
    assert re.search(r"Error: .*(loss is (nan|-?inf)|is not finite)", diverged.outputs[0])
    assert "--lr 1e+30: give a smaller one" in diverged.outputs[0]
    assert "weights sha256" not in diverged.outputs[0]


@pytest.mark.parametrize(
    ("recipe", "ranks", "args", "said"),
    [
        ("single", 2, (), "recipe single runs in one process, and 2 ranks were started"),
        ("tensor", 3, (), "4 attention heads cannot be split over 3 ranks: start 1, 2 or 4"),
        ("pipeline", 5, (), "the model has 4 layers, too few for a pipeline of 5 ranks"),
        ("ddp", 2, ("--batch-size", "1"), "too few for 2 ranks"),
        ("ddp", 1, ("--batch-size", "4", "--accumulate", "5"), "cannot be split into 5 micro-batches"),
        ("ddp", 1, ("--data", "cifar10"), "CIFAR-10 is not in "),
    ],
)
def test_what_cannot_be_trained_is_refused_in_words(recipes, tmp_path, recipe, ranks, args, said):
    refused = recipes.run(tmp_path, recipe, ranks, *args)
    assert 0 not in refused.codes
    assert any(said in output for output in refused.outputs), refused.outputs


@pytest.mark.parametrize(("options", "changes"), [((), True), (("--no-set-epoch",), False)])
def test_a_rank_gets_samples_that_another_one_had_only_where_the_epoch_is_set(recipes, tmp_path, options, changes):
    ran = recipes.run_module(tmp_path, "rekindle.recipes.primitives", 2, "samples", *options)
    assert ran.codes == [0, 0], "\n".join(ran.outputs)
    seen = [[set(re.findall(r"\d", line.partition(": ")[2])) for line in each.splitlines()] for each in ran.outputs]
    assert all(one | other == set("01234567") for one, other in zip(*seen, strict=True))
    assert all((first != second) is changes for first, second in seen)


def test_every_all_reduce_gives_the_same_bits_on_two_ranks_and_a_batch_is_split_by_rows(recipes, tmp_path):
    ran = recipes.run_module(tmp_path, "rekindle.recipes.primitives", 2, "step")
    assert ran.codes == [0, 0], "\n".join(ran.outputs)
    for rank, output in enumerate(ran.outputs):
        assert re.findall(r"allreduce \((\w+)\): (.*) becomes \[\[3\.0, 3\.0\]\]", output) == [
            (way, f"[[{rank + 1}.0, {rank + 1}.0]]") for way in ("naive", "ring", "bucketed")
        ]
        assert f"rows {2 * rank} to {2 * rank + 1}: " in output
