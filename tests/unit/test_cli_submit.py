"""The words after `rekindle submit` become the right request."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from rekindle.contract.job import JobSpec, SnapshotPolicy
from rekindle_service.cli import source_code
from rekindle_service.cli.commands.submit import parse_process_count, parse_ranks
from rekindle_service.cli.job_request import (
    environment,
    job_fields,
    misplaced_options,
    split_arguments,
    target_and_args,
)
from rekindle_service.cli.main import app


def test_arguments_after_the_script_are_passed_to_it() -> None:
    command = ["train.py", "--lr", "0.1", "--ranks", "8"]
    assert target_and_args(command, None, None) == ("script", "train.py", ["--lr", "0.1", "--ranks", "8"])


def test_with_a_module_or_a_recipe_every_word_is_an_argument() -> None:
    assert target_and_args(["a", "b"], "pkg.train", None) == ("module", "pkg.train", ["a", "b"])
    assert target_and_args([], None, "ddp") == ("recipe", "ddp", [])


@pytest.mark.parametrize(
    ("module", "recipe", "message"), [(None, None, "name a script"), ("pkg", "ddp", "exclude each other")]
)
def test_nothing_to_run_or_two_things_is_an_error(module: str | None, recipe: str | None, message: str) -> None:
    with pytest.raises(typer.BadParameter, match=message):
        target_and_args([], module, recipe)


def test_the_current_directory_is_copied_when_it_contains_the_script(tmp_path: Path) -> None:
    script = tmp_path / "src" / "train.py"
    script.parent.mkdir()
    script.touch()
    assert source_code.directory_and_script("src/train.py", None, tmp_path) == (tmp_path, "src/train.py")
    assert source_code.directory_and_script(str(script), None, tmp_path) == (tmp_path, "src/train.py")


def test_a_script_elsewhere_brings_its_own_directory(tmp_path: Path) -> None:
    script = tmp_path / "project" / "train.py"
    script.parent.mkdir()
    script.touch()
    cwd = tmp_path / "elsewhere"
    cwd.mkdir()
    assert source_code.directory_and_script("../project/train.py", None, cwd) == (script.parent, "train.py")


def test_an_option_after_the_script_is_noticed_where_it_was_hardly_meant_for_it() -> None:
    assert misplaced_options(["--lr", "0.1", "--ranks=4", "--name", "x"]) == ["--ranks"]
    assert misplaced_options(["--ranks", "2", "--hold"]) == ["--ranks", "--hold"]
    assert misplaced_options(["ranks", "--device", "cpu"]) == []


def test_a_home_is_not_mistaken_for_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    script = tmp_path / "project" / "train.py"
    script.parent.mkdir()
    for path in (script, tmp_path / "train.py"):
        path.touch()
    assert source_code.directory_and_script("project/train.py", None, tmp_path) == (script.parent, "train.py")
    for kind, value in (("script", "train.py"), ("module", "train")):
        with pytest.raises(typer.BadParameter, match=f"all of {tmp_path} would be copied"):
            source_code.directory_and_target(kind, value, None, tmp_path)
        assert source_code.directory_and_target(kind, value, Path(), tmp_path) == (tmp_path, value)


def test_the_script_is_named_relative_to_the_given_directory(tmp_path: Path) -> None:
    script = tmp_path / "src" / "train.py"
    script.parent.mkdir()
    script.touch()
    assert source_code.directory_and_script("src/train.py", Path("src"), tmp_path) == (script.parent, "train.py")


def test_a_script_outside_the_given_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "src").mkdir()
    with pytest.raises(typer.BadParameter, match="is not in --code"):
        source_code.directory_and_script("train.py", Path("src"), tmp_path)


def test_a_link_out_of_the_current_directory_is_followed_to_the_script(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").touch()
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    (cwd / "train.py").symlink_to(project / "train.py")
    assert source_code.directory_and_script("train.py", None, cwd) == (project, "train.py")


@pytest.mark.parametrize("name", ["missing.py", "", "."])
def test_a_script_that_is_no_file_is_an_error_that_names_the_path(tmp_path: Path, name: str) -> None:
    (tmp_path / "charlm.py").touch()
    with pytest.raises(typer.BadParameter, match=r"script not found: .*chalm.py; did you mean charlm.py\?"):
        source_code.directory_and_script("chalm.py", None, tmp_path)
    with pytest.raises(typer.BadParameter, match="script not found: .*" + tmp_path.name):
        source_code.directory_and_script(name, None, tmp_path)


@pytest.mark.parametrize(("text", "expected"), [("2", 2), ("1:4", {"min": 1, "max": 4}), ("4:1", {"min": 4, "max": 1})])
def test_ranks_are_a_number_or_a_range_that_the_server_validates(text: str, expected: object) -> None:
    assert parse_ranks(text) == expected


@pytest.mark.parametrize("text", ["", "two", "1:", ":4", "1:2:3", "1.5"])
def test_ranks_that_are_no_number_are_an_error(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="MIN:MAX"):
        parse_ranks(text)


def test_a_number_of_processes_that_torchrun_finds_out_is_refused_with_the_right_command() -> None:
    assert parse_process_count("4") == 4
    with pytest.raises(typer.BadParameter, match=r"rekindle submit --ranks 2 train\.py"):
        parse_process_count("gpu")


def test_arguments_of_restarts_are_split_as_a_shell_would() -> None:
    texts = ["--init_from=resume {exists:ckpt.pt}", "--resume '{latest:a b/*.pt}'"]
    assert split_arguments(texts) == ["--init_from=resume", "{exists:ckpt.pt}", "--resume", "{latest:a b/*.pt}"]
    with pytest.raises(typer.BadParameter, match="--on-restart"):
        split_arguments(["--name 'never closed"])


def test_a_script_that_is_not_in_this_directory_is_looked_for_in_the_given_one(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").touch()
    assert source_code.directory_and_script("train.py", Path("src"), tmp_path) == (tmp_path / "src", "train.py")


def test_a_variable_is_set_or_copied_and_its_value_may_hold_an_equals_sign() -> None:
    own = {"HF_TOKEN": "secret"}
    assert environment(["A=b=c", "E=", "HF_TOKEN"], own) == {"A": "b=c", "E": "", "HF_TOKEN": "secret"}


def test_a_variable_to_copy_that_is_not_set_is_an_error() -> None:
    with pytest.raises(typer.BadParameter, match="--env MISSING"):
        environment(["MISSING"], {})


def test_the_interpreter_is_a_path_or_that_of_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("CONDA_PREFIX", "/conda")
    assert source_code.interpreter("active", tmp_path) == "/conda/bin/python"
    monkeypatch.setenv("VIRTUAL_ENV", "/envs/mine")
    assert source_code.interpreter("active", tmp_path) == "/envs/mine/bin/python"
    assert source_code.interpreter("venv/bin/python", tmp_path) == str(tmp_path / "venv/bin/python")
    assert source_code.interpreter("/opt/bin/python", tmp_path) == "/opt/bin/python"


def test_a_virtual_environments_link_is_not_followed_to_the_interpreter_it_was_made_from(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to("/usr/bin/python3")
    assert source_code.interpreter("bin/python", tmp_path) == str(python)


def test_the_active_environment_of_a_shell_without_one_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(typer.BadParameter, match="VIRTUAL_ENV is not set"):
        source_code.interpreter("active", tmp_path)


def fields(*words: str) -> dict[str, Any]:
    """The fields of the request body that these options set."""
    command: Any = get_command(app)
    return job_fields(command.commands["submit"].make_context("submit", [*words, "train.py"]).params)


def test_only_given_options_are_sent_and_a_zero_is_given() -> None:
    assert fields() == {}
    assert fields("--priority", "0", "--cold", "--ranks", "1:4") == {
        "priority": 0,
        "warm": False,
        "ranks": {"min": 1, "max": 4},
    }


def test_options_of_the_snapshot_policy_are_sent_as_part_of_it() -> None:
    words = ("--every-steps", "20", "--every-auto", "--keep", "5", "--monitor", "-loss", "--name", "digits")
    policy = {"every_steps": 20, "auto": True, "keep": 5, "monitor": "-loss"}
    assert fields(*words) == {"name": "digits", "snapshot": policy}


def test_options_of_slurm_are_sent_as_one_field() -> None:
    assert fields("--slurm") == {"slurm": {}}
    words = ("--nodes", "1:2", "--partition", "gpu", "--slurm-time", "8:00:00", "--slurm-extra=--mem=32G")
    slurm = {"partition": "gpu", "time": "8:00:00", "extra": ["--mem=32G"]}
    assert fields(*words) == {"nodes": {"min": 1, "max": 2}, "slurm": slurm}


def test_every_option_of_a_job_has_an_option_on_the_command_line() -> None:
    command: Any = get_command(app)
    names = {parameter.name for parameter in command.commands["submit"].params}
    given_otherwise = {"kind", "target", "args", "env_from", "min_ranks", "max_ranks", "min_nodes", "snapshot"}
    options = {field.name for field in (*dataclasses.fields(JobSpec), *dataclasses.fields(SnapshotPolicy))}
    assert options - names == given_otherwise | {"keep_last", "warnings"}


@pytest.mark.parametrize(
    ("kind", "git", "ref", "code", "message"),
    [
        ("script", None, "v2", None, "--ref v2 needs --git URL"),
        ("script", "https://h/r", None, Path("src"), "--code src and --git https://h/r exclude each other"),
        ("recipe", "https://h/r", None, None, "a recipe brings its own code"),
    ],
)
def test_git_with_an_option_that_excludes_it_is_an_error(
    kind: str, git: str | None, ref: str | None, code: Path | None, message: str
) -> None:
    with pytest.raises(typer.BadParameter, match=message):
        source_code.locate(kind, "train", code, git=git, ref=ref)


def test_code_from_git_needs_no_directory() -> None:
    url = "https://h/r"
    assert source_code.locate("module", "pkg", None, git=url, ref=None) == (None, "pkg", {"git": url})
    assert source_code.locate("script", "a.py", None, git=url, ref="v2") == (None, "a.py", {"git": url, "ref": "v2"})
