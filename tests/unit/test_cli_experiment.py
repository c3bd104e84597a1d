"""Experiments on the command line: the file that defines one, and the table of its results."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from cli_examples import printed
from rekindle_service.cli.commands.experiment import comparison_table, machine_line, read_experiment, value_text
from rekindle_service.cli.layout import harmless


def test_a_script_is_found_from_the_file_and_a_recipe_or_module_needs_no_code(tmp_path: Path) -> None:
    file = tmp_path / "rates.toml"
    file.write_text('[base]\nscript = "train.py"\n[matrix]\n--lr = [0.1]\n')
    assert read_experiment(file) == {
        "name": "rates",
        "base": {"script": "train.py", "code": {"path": str(tmp_path)}},
        "matrix": {"--lr": [0.1]},
    }
    for target in ("recipe", "module"):
        file.write_text(f'base = {{ {target} = "ddp" }}\n')
        assert read_experiment(file)["base"] == {target: "ddp"}


def test_paths_in_the_file_are_relative_to_it(tmp_path: Path) -> None:
    file = tmp_path / "sets" / "rates.json"
    file.parent.mkdir()
    base = {"script": "train.py", "code": {"path": "../src"}, "python": "../venv/bin/python"}
    file.write_text(json.dumps({"name": "mine", "base": base, "matrix": {"--lr": [1]}}))
    read = read_experiment(file)
    assert read["name"] == "mine"
    assert read["base"]["code"] == {"path": str(tmp_path / "src")}
    assert read["base"]["python"] == str(tmp_path / "venv" / "bin" / "python")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "matrix = [", "Invalid value"),
        ("a.json", "{", "Expecting"),
        ("a.json", "[1]", "an object, not a list"),
        ("nowhere.toml", None, "nowhere"),
    ],
)
def test_a_file_that_is_no_experiment_is_named_in_the_error(
    tmp_path: Path, name: str, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(typer.BadParameter, match=message) as caught:
        read_experiment(tmp_path / name)
    assert name in str(caught.value)


def experiment(**changes: Any) -> Any:
    trials = [{"state": "succeeded"}, {"state": "succeeded"}]
    rows = [
        {"parameters": {"--lr": 0.1}, "trials": [0], "values": [0.97213], "spread": [None]},
        {"parameters": {"flat=": True}, "trials": [1], "values": [None], "spread": [None]},
    ]
    fields = {"parameters": ["--lr", "flat="], "measures": ["accuracy"], "rows": rows, "trials": trials, "best": [[]]}
    found = {**fields, "states": {"succeeded": 2}, **changes}
    return {**found, "trials": [{"pruned": None, **trial} for trial in found["trials"]]}


def words(shown: Any) -> list[list[str]]:
    return [line.split() for line in printed(200, shown)]


def test_a_row_shows_its_parameters_and_values_and_marks_the_best() -> None:
    assert words(comparison_table(experiment())) == [["--lr", "flat", "accuracy"], ["0.1", "0.9721"], ["yes", "-"]]
    assert words(comparison_table(experiment(best=[[0]])))[1] == ["0.1", "0.9721", "*"]


def test_states_are_shown_unless_all_jobs_succeeded() -> None:
    shown = experiment(trials=[{"state": "succeeded"}, {"state": "failed"}], states={"succeeded": 1, "failed": 1})
    assert [line[-1] for line in words(comparison_table(shown))] == ["state", "succeeded", "failed"]


def test_a_pruned_trial_shows_why_in_place_of_its_state() -> None:
    why = "pruned at step 4: loss 9 at step 2, the best third had ≤ 1"
    shown = experiment(trials=[{"state": "queued", "pruned": why}, {"state": "running"}], states={"queued": 1})
    assert [" ".join(line[-2:]) for line in words(comparison_table(shown))[1:]] == ["≤ 1", "- running"]
    assert why in " ".join(words(comparison_table(shown))[1])


def test_an_array_shows_the_job_and_state_of_each_index_and_the_failures() -> None:
    error = {"message": "Rank 0 raised ValueError: boom", "rank": 0, "file": None}
    trials = [{"state": "succeeded", "number": 4, "outcome": None}, {"state": "failed", "number": 5, "outcome": error}]
    rows = [{"parameters": {"index": index}, "trials": [index], "values": [], "spread": []} for index in (0, 1)]
    fields = {"parameters": ["index"], "measures": [], "rows": rows, "best": []}
    shown = words(comparison_table(experiment(**fields, trials=trials, states={"succeeded": 1, "failed": 1})))
    assert shown[:2] == [["index", "job", "state", "failure"], ["0", "#4", "succeeded"]]
    assert " ".join(shown[2]) == "1 #5 failed Rank 0 raised ValueError: boom"
    done = words(comparison_table(experiment(**fields, trials=[{**each, "state": "succeeded"} for each in trials])))
    assert done == [["index", "job", "state"], ["0", "#4", "succeeded"], ["1", "#5", "succeeded"]]


def test_a_name_with_escapes_is_sanitized() -> None:
    shown = words(comparison_table(experiment(measures=["\x1b]0;owned\x07acc\x1b[31muracy"])))
    assert shown[0] == ["--lr", "flat", "accuracy"]
    machine = machine_line(experiment(machine={"processor": "\x1b[31mred", "cores": 2, "memory": 1}))
    assert "\x1b" not in harmless(machine).plain


def test_values_have_four_significant_digits() -> None:
    shown = [value_text(value, None) for value in (None, 360.0, 1e300)]
    assert shown == ["-", "360", "1e+300"]
    assert value_text(2.0, (1.0, 3.5)) == "2 (1 to 3.5)"
