"""Recipes where the extra that they need is not installed."""

import subprocess
import sys

PROGRAM = """
import importlib, sys, torch
from rekindle.recipes.catalog import RECIPES
for library in ("torchvision", "torchmetrics", "sklearn"):
    for recipe in [*RECIPES, "all_reduce_speed"]:
        for name in [name for name in sys.modules if name.startswith("rekindle.recipes.")]:
            del sys.modules[name]
        sys.modules[library] = None
        try:
            importlib.import_module(f"rekindle.recipes.{recipe}")
        except ModuleNotFoundError as error:
            print(recipe, library, error, sep="|")
        finally:
            del sys.modules[library]
"""
RECIPES = {"ddp", "dp", "fsdp", "pipeline", "rl", "scratch", "single", "tensor", "all_reduce_speed"}


def test_a_recipe_without_its_extra_ends_with_one_sentence_that_names_it_and_the_command():
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    found = [line.split("|") for line in ended.stdout.splitlines()]
    assert {(recipe, library) for recipe, library, _ in found} == {
        (recipe, library) for recipe in RECIPES for library in ("torchvision", "torchmetrics", "sklearn")
    }
    for _, library, sentence in found:
        assert sentence.startswith(f"recipes need {library}")
        assert f"by `{sys.executable} -m pip install torchvision torchmetrics scikit-learn`" in sentence
