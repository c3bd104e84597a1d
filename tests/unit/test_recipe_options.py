import pytest

from rekindle.recipes.batch_size import BatchSize
from rekindle.recipes.learning_rate import LearningRate
from rekindle.recipes.options import DATA, SCHEDULE, SHARED_BATCH, Options, read_options


def read(*arguments, **defaults):
    names = (*DATA, *SCHEDULE, *SHARED_BATCH, "accumulate", "deterministic-elastic")
    return read_options("Recipe: x", *names, models=("a", "b"), arguments=list(arguments), **defaults)


def refusal(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        read(*arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_what_is_not_given_keeps_its_default_and_what_a_recipe_changes_is_its_default():
    assert read(lr=0.5) == Options(model="a", lr=0.5)
    assert read("--lr", "0.2", lr=0.5).lr == 0.2


def test_switches_are_read():
    chosen = read("--no-shuffle", "--lr-steps", "10,15,18", "--batch-size-per-rank", "32", "--lr-rule", "sqrt")
    assert (chosen.shuffle, chosen.lr_steps, chosen.batch_size_per_rank, chosen.lr_rule) == (
        False,
        (10, 15, 18),
        32,
        "sqrt",
    )


def test_an_unknown_option_is_answered_with_the_nearest_one(capsys):
    assert "unknown option --bach-size; did you mean --batch-size?" in refusal(capsys, "--bach-size", "3")
    assert "unknown option --zzz; --help lists" in refusal(capsys, "--zzz")


def test_an_option_that_a_recipe_does_not_offer_is_unknown_to_it(capsys):
    assert "unknown option --sync-batchnorm" in refusal(capsys, "--sync-batchnorm")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batch-size", "8", "--batch-size-per-rank", "4"], "give only one of them"),
        (["--lr-rule", "linear"], "--lr-rule linear needs --batch-size-per-rank"),
        (["--deterministic-elastic", "4", "--batch-size-per-rank", "8"], "takes the number of ranks out"),
        (["--accumulate", "0"], "argument --accumulate: must be a whole number from 1 on, not 0"),
        (["--epochs", "many"], "argument --epochs: must be a whole number from 1 on, not many"),
        (["--workers", "-1"], "argument --workers: must be a whole number from 0 on, not -1"),
        (["--seed", str(2**63)], "argument --seed: must be a whole number from 0 on, not 9223372036854775808"),
        (["--lr", "nan"], "argument --lr: must be a number above 0, not nan"),
        (["--throttle", "-0.5"], "argument --throttle: must be seconds, 0 or more, not -0.5"),
        (["--lr-steps", "5,x"], "must be epochs in rising order, such as 10,15,18, not 5,x"),
        (["--lr-steps", "5,3"], "must be epochs in rising order, such as 10,15,18, not 5,3"),
        (["--model", "c"], "invalid choice: 'c'"),
        (["--batch", "4"], "did you mean --batch-size?"),
    ],
)
def test_a_contradiction_or_a_bad_value_is_refused_in_words(capsys, arguments, said):
    assert said in refusal(capsys, *arguments)


def test_a_batch_per_rank_grows_with_the_ranks_and_a_batch_of_all_does_not():
    assert BatchSize.choose(Options(batch_size_per_rank=64), 3) == BatchSize(192, 3, growth=3)
    assert BatchSize.choose(Options(batch_size=64), 3) == BatchSize(64, 3, growth=1)
    assert BatchSize.choose(Options(), 2) == BatchSize(128, 2, growth=1)


def test_a_batch_tells_both_of_its_sizes():
    assert str(BatchSize(128, 2, 1)) == "batch of all ranks 128 = 2 ranks x 64"
    assert str(BatchSize(128, 3, 1)) == "batch of all ranks 128 = 3 ranks x 42 or 43"
    assert str(BatchSize(128, 1, 1)) == "batch 128, not divided"


def test_the_samples_of_an_epoch_are_counted_though_its_last_batches_are_smaller():
    batch = BatchSize(of_all=128, sharers=2, growth=1)
    assert batch.samples_in_last(12, 1438) == 1438  # not 12 * 128
    assert batch.samples_in_last(2, 1438) == 158
    assert batch.samples_in_last(0, 1438) == 0


@pytest.mark.parametrize(("rule", "lr"), [("none", 0.1), ("linear", 0.4), ("sqrt", 0.2)])
def test_the_learning_rate_follows_the_growth_of_the_batch_by_the_rule(rule, lr):
    assert LearningRate.choose(Options(lr_rule=rule), growth=4).at(0, 0) == pytest.approx(lr)


def test_the_learning_rate_warms_up_step_by_step():
    rate = LearningRate(full=0.8, warmup_steps=4, falls_at=(9,), epochs=20)
    assert [rate.at(step, 0) for step in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.8])


def test_the_learning_rate_falls_to_a_tenth_at_each_of_the_epochs():
    rate = LearningRate(full=0.1, warmup_steps=0, falls_at=(2, 3, 5), epochs=6)
    found = [rate.at(100, epoch) for epoch in range(6)]
    assert found == pytest.approx([0.1, 0.1, 0.01, 0.001, 0.001, 0.0001])


def test_without_epochs_to_fall_at_the_learning_rate_goes_down_as_a_cosine():
    rate = LearningRate(full=0.1, warmup_steps=0, falls_at=(), epochs=4)
    assert [rate.at(0, epoch) for epoch in (0, 2)] == pytest.approx([0.1, 0.05])
    assert 0 < rate.at(0, 3) < rate.at(0, 2)
