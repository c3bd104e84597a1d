"""The pages that a beginner reads: scripts that run as they are shown, and a glossary that has each word once."""

import re
import sys
from pathlib import Path

import pytest

from doc_pages import ROOT, blocks
from rekindle.contract.states import JobState

KEPT_WORDS = {
    "keeper", "attempt", "snapshot", "drain", "goodput", "slot", "pin", "recipe", "bundle", "chaos", "doctor", "home",
    "straggler", "stalled", "culprit",
}  # fmt: skip
"""Words of rekindle's own that no other system has in this sense."""


def glossary() -> list[str]:
    """The words that docs/concepts.md defines, in its order."""
    _, _, text = (ROOT / "docs" / "concepts.md").read_text().partition("## Glossary")
    cells = re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)
    return [word for cell in cells for word in cell.split(", ") if cell not in ("word", "---")]


def test_the_glossary_defines_each_kept_word_once() -> None:
    words = glossary()
    assert set(words) >= KEPT_WORDS
    assert len(words) == len(set(words))


def test_the_concepts_name_every_state() -> None:
    text = (ROOT / "docs" / "concepts.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == [str(state) for state in JobState]


def test_the_scripts_of_the_quickstart_run_as_they_are_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plain, exact = blocks("python", "docs/quickstart.md")
    world = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    for name, value in {**world, "REKINDLE_SNAPSHOT_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["train.py", "--epochs", "1"])
    exec(plain.text, {})  # noqa: S102 it is our own page
    assert (tmp_path / "checkpoint.pt").is_file()
    for name in world:
        monkeypatch.delenv(name)
    exec(exact.text.replace("epochs(40)", "epochs(1)"), {})  # noqa: S102 it is our own page
    assert list(tmp_path.glob("*/manifest.json"))


def test_the_parts_of_scripts_in_the_page_on_own_scripts_are_in_the_examples() -> None:
    examples = {
        line.strip().removesuffix(",")
        for path in (ROOT / "docs/examples").glob("with_*.py")
        for line in path.read_text().splitlines()
    }
    shown = {line.strip() for block in blocks("python", "docs/own-scripts.md") for line in block.text.splitlines()}
    assert {line.replace("callbacks = ", "callbacks=") for line in shown} <= examples
