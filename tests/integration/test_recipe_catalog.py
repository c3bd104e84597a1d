"""The catalog of recipes is what their modules are and do."""

import importlib
import pkgutil
import re
import sys

import pytest

import rekindle.recipes
from rekindle.recipes.catalog import RECIPES, Options
from rekindle.recipes.models import Shape, build
from rekindle.recipes.scratch import ALGORITHMS

CHOICES = {option.name: option.choices for recipe in RECIPES.values() for option in recipe.options}


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_accepts_exactly_the_options_of_the_catalog(
    recipe: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [recipe, "--help"])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as end:
        importlib.import_module(f"rekindle.recipes.{recipe}").main()
    assert end.value.code == 0
    text = capsys.readouterr().out
    options = RECIPES[recipe].options
    assert {option.name for option in options} == set(re.findall(r"^ +--([a-z-]+)", text, re.MULTILINE))
    for option in options:
        assert option.help
        if option.choices:
            assert f"--{option.name} {{{','.join(option.choices)}}}" in text
            assert option.default in option.choices


def test_every_module_that_says_it_is_a_recipe_is_in_the_catalog() -> None:
    names = (module.name for module in pkgutil.iter_modules(rekindle.recipes.__path__))
    modules = (importlib.import_module(f"rekindle.recipes.{name}") for name in names)
    named = {module.__name__.rpartition(".")[2] for module in modules if (module.__doc__ or "").startswith("Recipe: ")}
    assert named == set(RECIPES)


def test_every_option_is_offered_by_some_recipe() -> None:
    assert {name for recipe in RECIPES.values() for name in recipe.offered} == set(Options.__dataclass_fields__)


def test_every_choice_of_the_catalog_exists() -> None:
    assert set(CHOICES["all-reduce"]) == set(ALGORITHMS)
    for model in CHOICES["model"]:
        build(model, Shape(classes=10, channels=1, side=28))
    with pytest.raises(ValueError, match="unknown model 'lenett'"):
        build("lenett", Shape(classes=10, channels=1, side=28))
