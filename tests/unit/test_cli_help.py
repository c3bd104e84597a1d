"""The help of every command: lines that fit, defaults that are stated, and the nearest right name for a typo."""

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.main import get_command

from rekindle_service.cli.help_and_errors import first_sentence, format_error, format_usage_error, help_text, option_row
from rekindle_service.cli.main import app, output_defaults
from rekindle_service.cli.terminal import print_wrapped

_NO_DEFAULT = {
    "step",
    *("module", "recipe", "git", "env", "on_restart", "after", "after_any", "continue_from", "exclude", "watch"),
    *("array", "slurm_time", "slurm_extra", "slurm_prologue", "constraint"),
    *("file", "show", "cancel", "resume", "delete"),
}
"""Options without a default: what they add is absent."""


def commands(command: Any, path: str = "rekindle", parent: Any = None) -> Iterator[tuple[str, Any, Any]]:
    context = typer.Context(command, info_name=path, parent=parent, help_option_names=["-h", "--help"])
    yield context.command_path, command, context
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, name, context)


COMMANDS = list(commands(get_command(app)))


def test_every_line_of_the_help_fits_the_terminal() -> None:
    for width in (40, 80):
        texts = [help_text(Console(width=width), command, context) for _, command, context in COMMANDS]
        assert [line for text in texts for line in text.splitlines() if len(line) > width] == []


def test_a_command_is_one_line_in_the_list_of_commands() -> None:
    most = 80 - len("  experiment  ")
    found = {path: first_sentence(command.help or "") for path, command, _ in COMMANDS}
    too_long = [path for path, sentence in found.items() if len(sentence) > most and path != "rekindle"]
    assert too_long == []
    assert all(found.values())


def test_the_help_of_a_priority_says_what_it_does_to_running_jobs_and_how_high_it_may_be() -> None:
    ((command, context),) = [(command, context) for path, command, context in COMMANDS if path == "rekindle submit"]
    ((_, text),) = [option_row(each, context) for each in command.get_params(context) if each.name == "priority"]
    for words in (
        "may preempt running jobs of lower priority",
        "only those of its owner (setting `preemption`)",
        "max_priority",
    ):
        assert words in text


def test_every_option_has_a_sentence_and_a_default() -> None:
    found = []
    for path, command, context in COMMANDS:
        for param in command.get_params(context):
            if param.param_type_name != "option" or param.hidden:
                continue
            label, text = option_row(param, context)
            complete = text.endswith((".", ")")) and ("Repeatable" in text or not param.multiple)
            if not complete or not (param.is_flag or "(default: " in text or param.name in _NO_DEFAULT):
                found.append(f"{path} {label}: {text}")
    assert found == []


def test_every_command_but_five_prints_json() -> None:
    silent = set()
    for path, command, context in COMMANDS:
        outputs = [param for param in command.get_params(context) if "-o" in param.opts]
        if not any("json" in param.display_type(context) for param in outputs):
            silent.add(path)
    others = {"rekindle serve", "rekindle demo", "rekindle attach", "rekindle mcp", "rekindle snapshots export"}
    others |= {"rekindle snapshots"}
    assert silent <= others


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["sbmit"], "did you mean 'submit'?"),
        (["token", "creat"], "did you mean 'create'?"),
        (["snapshots", "exprt", "digits"], "did you mean 'export'?"),
        (["ps", "--stat", "running"], "no such option: --stat; did you mean --state?"),
        (["submit", "--rank", "2", "train.py"], "did you mean --ranks?"),
        (["submit", "--max-failure", "2", "train.py"], "did you mean --max-failures?"),
        (["sweep", "-m", "a.train", "--lr", "1,2"], "Options of the module come after --, as in -m a.train -- --lr\n"),
        (["ps", "--home", "x"], "--home comes before the command: rekindle --home PATH ps\n"),
        (["token", "list", "--version"], "--version comes before the command: rekindle --version token list\n"),
        (["kill", "digits"], "no such command 'kill'; did you mean 'cancel'?"),
        (["stop"], "no such command 'stop'; did you mean 'cancel' or 'drain'?"),
        (["export"], "no such command 'export'; did you mean 'snapshots export'?"),
        (
            ["submit", "--python", "actve", "x.py"],
            "--python: 'actve': must be the path of an interpreter or active; did you mean 'active'?",
        ),
        (["-o", "json", "serve"], "-o json: serve does not print JSON or ids"),
        (["ps", "--qqqqqqqq"], "no such option: --qqqqqqqq\n"),
        (["ps", "--state", "runing"], "--state: 'runing' is not one of"),
        (["ps", "--state", "runing"], "; did you mean 'running'?"),
        (["snapshots", "export", "x", "-o", "json"], "-o json: names the file to write, which ends in .safetensors"),
        (["show"], "missing argument 'JOB'"),
        (["ps", "--limit", "0"], "--limit: must be greater than or equal to 1"),
        (["logs", "--stream", "stdin", "x"], "--stream: 'stdin' is not one of 'stdout', 'stderr', 'both'"),
    ],
)
def test_a_typo_is_answered_with_the_nearest_right_name_and_the_usage(words: list[str], shown: str) -> None:
    with pytest.raises(typer.TyperException) as raised:
        app(words, prog_name="rekindle", standalone_mode=False)
    text = format_usage_error(raised.value).plain
    assert shown in text
    assert "Usage: rekindle " in text
    assert "--help" in text


def test_a_terminal_breaks_an_error_between_words_and_keeps_a_long_word_whole() -> None:
    console = Console(file=StringIO(), force_terminal=True, color_system=None, width=40, soft_wrap=True)
    url = f"http://127.0.0.1:8700/{'x' * 40}"
    print_wrapped(console, format_error(f"the server at {url} does not answer to this request", "Start it again"))
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "error: the server at",
        f"  {url}",
        "  does not answer to this request",
        "  Start it again",
    ]


def test_the_output_format_may_come_before_the_command() -> None:
    root: Any = get_command(app)
    defaults = output_defaults(root, typer.Context(root), "json")
    assert (defaults["ps"], defaults["token"]["list"]) == ({"output": "json"}, {"output": "json"})
    assert (defaults["serve"], defaults["snapshots"]["export"]) == ({}, {})
