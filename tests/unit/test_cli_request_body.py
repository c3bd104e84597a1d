"""What stands after `rekindle submit` becomes the right request."""

from pathlib import Path

import pytest
import typer

from rekindle_service.cli import request_body


def test_everything_behind_the_script_belongs_to_it() -> None:
    command = ["train.py", "--lr", "0.1", "--ranks", "8"]
    assert request_body.target_and_args(command, None, None) == ("script", "train.py", ["--lr", "0.1", "--ranks", "8"])


def test_with_a_module_or_a_recipe_every_word_is_an_argument() -> None:
    assert request_body.target_and_args(["a", "b"], "pkg.train", None) == ("module", "pkg.train", ["a", "b"])
    assert request_body.target_and_args([], None, "ddp") == ("recipe", "ddp", [])


@pytest.mark.parametrize(
    ("module", "recipe", "told"), [(None, None, "name a script"), ("pkg", "ddp", "only one of them")]
)
def test_nothing_to_run_or_two_things_is_an_error(module: str | None, recipe: str | None, told: str) -> None:
    with pytest.raises(typer.BadParameter, match=told):
        request_body.target_and_args([], module, recipe)


def test_the_current_folder_goes_along_when_the_script_lies_in_it(tmp_path: Path) -> None:
    script = tmp_path / "src" / "train.py"
    script.parent.mkdir()
    script.touch()
    assert request_body.code_and_script("src/train.py", None, tmp_path) == (tmp_path, "src/train.py")
    assert request_body.code_and_script(str(script), None, tmp_path) == (tmp_path, "src/train.py")


def test_a_script_elsewhere_brings_its_own_folder(tmp_path: Path) -> None:
    script = tmp_path / "project" / "train.py"
    script.parent.mkdir()
    script.touch()
    cwd = tmp_path / "elsewhere"
    cwd.mkdir()
    assert request_body.code_and_script("../project/train.py", None, cwd) == (script.parent, "train.py")


def test_an_option_behind_the_script_is_noticed_where_it_was_hardly_meant_for_it() -> None:
    assert request_body.misplaced(["--lr", "0.1", "--ranks=4", "--name", "x"]) == ["--ranks"]
    assert request_body.misplaced(["ranks", "--device", "cpu"]) == []


def test_somebodys_home_is_not_taken_for_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    script = tmp_path / "project" / "train.py"
    script.parent.mkdir()
    for path in (script, tmp_path / "train.py"):
        path.touch()
    assert request_body.code_and_script("project/train.py", None, tmp_path) == (script.parent, "train.py")
    for kind, value in (("script", "train.py"), ("module", "train")):
        with pytest.raises(typer.BadParameter, match=f"all of {tmp_path} would be copied"):
            request_body.folder_of(kind, value, None, tmp_path)
        assert request_body.folder_of(kind, value, Path(), tmp_path) == (tmp_path, value)


def test_the_script_is_named_relative_to_the_given_folder(tmp_path: Path) -> None:
    script = tmp_path / "src" / "train.py"
    script.parent.mkdir()
    script.touch()
    assert request_body.code_and_script("src/train.py", Path("src"), tmp_path) == (script.parent, "train.py")


def test_a_script_outside_the_given_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "src").mkdir()
    with pytest.raises(typer.BadParameter, match="does not lie in --code"):
        request_body.code_and_script("train.py", Path("src"), tmp_path)


def test_a_link_out_of_the_current_folder_is_followed_to_where_the_script_lies(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").touch()
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    (cwd / "train.py").symlink_to(project / "train.py")
    assert request_body.code_and_script("train.py", None, cwd) == (project, "train.py")


@pytest.mark.parametrize("name", ["missing.py", "", "."])
def test_a_script_that_is_no_file_is_an_error_that_names_the_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(typer.BadParameter, match="no such script: .*" + tmp_path.name):
        request_body.code_and_script(name, None, tmp_path)


@pytest.mark.parametrize(("text", "expected"), [("2", 2), ("1:4", {"min": 1, "max": 4}), ("4:1", {"min": 4, "max": 1})])
def test_ranks_are_a_number_or_a_range_that_the_server_judges(text: str, expected: object) -> None:
    assert request_body.ranks(text) == expected


@pytest.mark.parametrize("text", ["", "two", "1:", ":4", "1:2:3", "1.5"])
def test_ranks_that_are_no_number_are_an_error(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="MIN:MAX"):
        request_body.ranks(text)


def test_a_variable_is_set_or_copied_and_its_value_may_hold_an_equals_sign() -> None:
    own = {"HF_TOKEN": "secret"}
    assert request_body.environment(["A=b=c", "E=", "HF_TOKEN"], own) == {"A": "b=c", "E": "", "HF_TOKEN": "secret"}


def test_a_variable_to_copy_that_is_not_set_is_an_error() -> None:
    with pytest.raises(typer.BadParameter, match="--env MISSING"):
        request_body.environment(["MISSING"], {})


def test_the_interpreter_is_the_servers_unless_asked_for(tmp_path: Path) -> None:
    own = {"VIRTUAL_ENV": "/envs/mine"}
    assert request_body.interpreter(None, own, tmp_path) is None
    assert request_body.interpreter("active", own, tmp_path) == "/envs/mine/bin/python"
    assert request_body.interpreter("active", {"CONDA_PREFIX": "/conda"}, tmp_path) == "/conda/bin/python"
    assert request_body.interpreter("venv/bin/python", own, tmp_path) == str(tmp_path / "venv/bin/python")
    assert request_body.interpreter("/opt/bin/python", own, tmp_path) == "/opt/bin/python"


def test_a_virtual_environments_link_is_not_followed_to_the_interpreter_it_was_made_from(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to("/usr/bin/python3")
    assert request_body.interpreter("bin/python", {}, tmp_path) == str(python)


def test_asking_for_the_active_environment_without_one_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="VIRTUAL_ENV is not set"):
        request_body.interpreter("active", {}, tmp_path)


def test_only_given_fields_are_sent_and_a_zero_is_given() -> None:
    fields = request_body.given(name=None, args=[], env={}, priority=0, warm=False, ranks=2)
    assert fields == {"priority": 0, "warm": False, "ranks": 2}


def test_code_from_git_is_no_folder_too() -> None:
    assert request_body.repository("script", None, None, Path("src")) is None
    assert request_body.repository("module", "https://h/r", None, None) == {"git": "https://h/r"}
    assert request_body.repository("script", "https://h/r", "v2", None) == {"git": "https://h/r", "ref": "v2"}


@pytest.mark.parametrize(
    ("kind", "git", "ref", "code", "told"),
    [
        ("script", None, "v2", None, "--ref v2 goes with --git URL"),
        ("script", "https://h/r", None, Path("src"), "only one of them: --code src or --git https://h/r"),
        ("recipe", "https://h/r", None, None, "a recipe brings its own code"),
    ],
)
def test_git_beside_what_it_excludes_is_an_error(
    kind: str, git: str | None, ref: str | None, code: Path | None, told: str
) -> None:
    with pytest.raises(typer.BadParameter, match=told):
        request_body.repository(kind, git, ref, code)
