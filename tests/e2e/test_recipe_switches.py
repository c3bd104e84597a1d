"""Every option of the recipes changes what it says, and nothing else."""

import re
from functools import cache

import pytest

LENET = ("--model", "lenet", "--epochs", "1", "--batch-size", "240")  # six steps
QUICK = ("--model", "transformer", "--epochs", "1", "--batch-size", "720")  # two steps
SCORES = re.compile(r"loss (\d\.\d+) \| acc (\d+\.\d)% \| all ranks: loss (\d\.\d+) \| acc (\d+\.\d)%")


@pytest.fixture(scope="module")
def train(recipes, tmp_path_factory):
    """Trains to a good end, once for the same arguments."""

    @cache
    def run(name, ranks, *args):
        return ended_well(recipes.run(tmp_path_factory.mktemp(name), name, ranks, *args))

    return run


@pytest.fixture
def train_oddly(recipes, tmp_path_factory):
    def run(oddity, name, ranks, *args):
        return recipes.run_module(tmp_path_factory.mktemp(oddity), "odd_recipe", ranks, oddity, name, *args)

    return run


def ended_well(trained):
    assert set(trained.codes) == {0}, "\n".join(trained.outputs)
    return trained


def said(trained, pattern):
    return re.findall(pattern, trained.outputs[0])


def test_a_batch_of_each_rank_and_a_batch_of_all_ranks_are_the_same_training(train):
    of_each = train("ddp", 2, *LENET[:4], "--batch-size-per-rank", "120")
    assert "global batch 240 = 2 ranks x 120" in of_each.outputs[0]
    assert of_each.weights == train("ddp", 2, *LENET).weights


def test_every_rank_prints_its_own_score_and_that_of_all(train):
    (first,), (second,) = (SCORES.findall(output) for output in train("ddp", 2, *LENET).outputs)
    assert first[2:] == second[2:]  # of all ranks
    assert first[:2] != second[:2]  # of its own samples
    for own, other, of_all in zip(map(float, first[:2]), map(float, second[:2]), map(float, first[2:]), strict=True):
        assert (own + other) / 2 == pytest.approx(of_all, abs=0.11)  # equal shares; the line is rounded


def test_the_learning_rate_falls_to_a_tenth_at_the_given_epochs(train):
    args = ("--epochs", "4", "--batch-size", "720", "--lr-steps", "1,2,3", "--lr", "0.1")
    assert said(train("single", 1, "--model", "lenet", *args), r"lr (\d\.\d{4}) \| loss") == [
        "0.1000",
        "0.0100",
        "0.0010",
        "0.0001",
    ]


def test_micro_batches_of_a_step_share_gradients_once(train_oddly):
    def messages(*args):
        return said(ended_well(train_oddly("counted-messages", "ddp", 2, *LENET, *args)), r"(\d+) messages")

    assert messages() == messages("--accumulate", "3") == ["6"]


@pytest.mark.parametrize(
    ("amp", "precision", "scale"),
    [("no", "float32", "1.0"), ("bf16", "bfloat16", "1.0"), ("fp16", "float16", "65536.0")],
)
def test_the_model_answers_in_the_precision_asked_for_and_only_fp16_scales_the_loss(train_oddly, amp, precision, scale):
    trained = ended_well(train_oddly("seen-precision", "single", 1, *QUICK, "--amp", amp))
    assert f"precision {{'torch.{precision}'}} scale {{{scale}}}" in trained.outputs[0]


@pytest.mark.parametrize(("workers", "loaders"), [("0", {"loader-own"}), ("2", {"loader-0", "loader-1"})])
def test_samples_are_loaded_by_as_many_processes_as_asked_for(train_oddly, workers, loaders):
    trained = ended_well(train_oddly("seen-loaders", "single", 1, *QUICK, "--workers", workers))
    assert {path.name for path in trained.directory.glob("loader-*")} == loaders


def test_loading_processes_and_evaluation_do_not_change_what_is_learnt_and_the_seed_does(train):
    plain = train("ddp", 2, *QUICK).weights
    assert train("ddp", 2, *QUICK, "--workers", "2", "--evaluate", "padded").weights == plain
    assert train("ddp", 2, *QUICK, "--seed", "1").weights != plain


def test_a_layer_that_is_not_used_needs_its_option(train_oddly):
    refused = train_oddly("idle-layer", "ddp", 2, *QUICK)
    assert 0 not in refused.codes
    assert "Expected to have finished reduction in the prior iteration" in refused.outputs[0]
    ended_well(train_oddly("idle-layer", "ddp", 2, *QUICK, "--find-unused-parameters"))


def test_divided_models_are_counted_by_all_ranks_together(train):
    trained = train("fsdp", 2, *QUICK, "--evaluate", "compare")
    assert said(trained, r"compare evaluation")
    assert trained.accuracy
