import pytest

from rekindle.recipes.catalog import Options, Recipe, RecipeOption

OFFERED = tuple(Options.__dataclass_fields__.keys() - {"sync_batchnorm"})


def recipe(**defaults):
    return Recipe("x", "Train", OFFERED, choices={"model": ("a", "b")}, defaults=defaults)


def parse(*arguments, **defaults):
    return recipe(**defaults).parse(arguments)


def test_an_option_that_is_not_set_has_the_default_of_the_recipe_or_of_all_recipes():
    assert parse(lr=0.5) == Options(model="a", lr=0.5)
    assert parse("--lr", "0.2", lr=0.5).lr == 0.2


def test_an_option_is_described_with_the_choices_and_the_default_of_the_recipe():
    options = {option.name: option for option in recipe(lr=0.5).options}
    assert options["lr"] == RecipeOption("lr", "learning rate", None, (), False, "0.5")
    assert options["model"] == RecipeOption("model", "model", None, ("a", "b"), False, "a")
    assert (options["download"].is_flag, options["download"].default) == (True, None)
    assert (options["batch-size"].metavar, options["batch-size"].default) == ("N", None)
    assert options["lr-steps"].default is None
    assert options["no-shuffle"].is_flag
    assert options.keys().isdisjoint({"shuffle", "sync-batchnorm"})


def test_options_are_parsed():
    parsed = parse("--no-shuffle", "--lr-steps", "10,15,18", "--batch-size-per-rank", "32", "--lr-rule", "sqrt")
    expected = Options(model="a", shuffle=False, lr_steps=(10, 15, 18), batch_size_per_rank=32, lr_rule="sqrt")
    assert parsed == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batch-size", "8", "--batch-size-per-rank", "4"], "give only one of them"),
        (["--lr-rule", "linear"], "--lr-rule linear needs --batch-size-per-rank"),
        (["--deterministic-elastic", "4", "--batch-size-per-rank", "8"], "independent of the number of ranks"),
        (["--accumulate", "0"], "argument --accumulate: must be an integer of at least 1, not 0"),
        (["--epochs", "many"], "argument --epochs: must be an integer of at least 1, not many"),
        (["--workers", "-1"], "argument --workers: must be an integer from 0 to 2^63 - 1, not -1"),
        (["--seed", str(2**63)], "argument --seed: must be an integer from 0 to 2^63 - 1, not 9223372036854775808"),
        (["--lr", "nan"], "argument --lr: must be a number above 0, not nan"),
        (["--throttle", "-0.5"], "argument --throttle: must be a number of seconds, at least 0, not -0.5"),
        (["--lr-steps", "5,x"], "must be epochs in rising order, such as 10,15,18, not 5,x"),
        (["--lr-steps", "5,3"], "must be epochs in rising order, such as 10,15,18, not 5,3"),
        (["--model", "c"], "invalid choice: 'c'"),
        (["--batch", "4"], "did you mean --batch-size?"),
        (["--bach-size", "3"], "unknown option --bach-size; did you mean --batch-size?"),
        (["--zzz"], "unknown option --zzz; --help lists the options of this recipe"),
        (["--sync-batchnorm"], "unknown option --sync-batchnorm"),
    ],
)
def test_a_contradiction_an_invalid_value_and_an_unknown_option_are_rejected_with_a_message(capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        parse(*arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
