"""The options that the service reads from the recipes' source are those that their command lines take."""

import ast
import importlib
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rekindle_service.jobs import recipe_catalog
from rekindle_service.jobs.recipe_catalog import recipe_options, recipes


@pytest.mark.parametrize("recipe", sorted(recipes()))
def test_a_recipe_takes_just_the_options_that_are_listed(
    recipe: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [recipe, "--help"])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as end:
        importlib.import_module(f"rekindle.recipes.{recipe}").main()
    assert end.value.code == 0
    told = capsys.readouterr().out
    listed = recipe_options(recipe)
    offered = set(re.findall(r"^ +--([a-z-]+)", told, re.MULTILINE))
    assert {option.name for option in listed} == offered - {"help"}
    for option in listed:
        if option.choices:
            assert f"--{option.name} {{{','.join(option.choices)}}}" in told


def test_threads_that_read_at_once_never_parse_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parse, alone, intruders = ast.parse, threading.Lock(), []

    def watched(source: bytes) -> ast.Module:
        if not alone.acquire(blocking=False):
            intruders.append(threading.current_thread().name)
            return parse(source)
        try:
            return parse(source)
        finally:
            alone.release()

    recipe_catalog._parse_all.cache_clear()
    with monkeypatch.context() as patch, ThreadPoolExecutor(8) as pool:
        patch.setattr(recipe_catalog.ast, "parse", watched)
        found = list(pool.map(lambda _: recipes(), range(8)))
    assert found == [recipes()] * 8
    assert not intruders
