"""The words after `rekindle submit` become the right request."""

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.main import get_command

from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import SnapshotPolicy
from rekindle_service.cli import source_code
from rekindle_service.cli.commands.submit import parse_process_count, validated_lines
from rekindle_service.cli.help_and_errors import words_before
from rekindle_service.cli.job_interpreter import interpreter
from rekindle_service.cli.job_request import (
    environment,
    job_fields,
    parse_ranks,
    parse_seconds,
    require_order,
    split_arguments,
    target_and_args,
)
from rekindle_service.cli.main import app


def test_words_after_the_target_are_its_arguments_and_there_is_one_target() -> None:
    arguments = ["--lr", "0.1", "--ranks", "8"]
    assert target_and_args(["train.py", *arguments], None, None) == ("script", "train.py", arguments)
    assert target_and_args(["a", "b"], "pkg.train", None) == ("module", "pkg.train", ["a", "b"])
    assert target_and_args([], None, "ddp") == ("recipe", "ddp", [])
    for module, recipe, message in ((None, None, "name a script"), ("pkg", "ddp", "exclude each other")):
        with pytest.raises(typer.BadParameter, match=message):
            target_and_args([], module, recipe)


@pytest.mark.parametrize(
    ("script", "cwd", "code", "directory", "target"),
    [
        ("src/train.py", "", None, "", "src/train.py"),
        ("{root}/src/train.py", "", None, "", "src/train.py"),
        ("../src/train.py", "elsewhere", None, "src", "train.py"),
        ("link.py", "elsewhere", None, "src", "train.py"),
        ("src/train.py", "", "src", "src", "train.py"),
        ("train.py", "", "src", "src", "train.py"),
    ],
    ids=["below", "absolute", "outside", "link to outside", "relative to cwd", "relative to --code"],
)
def test_a_directory_that_contains_the_script_is_copied(
    tmp_path: Path, script: str, cwd: str, code: str | None, directory: str, target: str
) -> None:
    for name in ("src", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "src" / "train.py").touch()
    (tmp_path / "elsewhere" / "link.py").symlink_to(tmp_path / "src" / "train.py")
    found = source_code.directory_and_script(script.format(root=tmp_path), code and Path(code), tmp_path / cwd)
    assert found == (tmp_path / directory, target)


def test_a_script_that_is_no_file_or_not_in_the_given_directory_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "charlm.py").touch()
    (tmp_path / "src").mkdir()
    missing = dict.fromkeys(("missing.py", "", "."), "script not found: .*" + tmp_path.name)
    missing["chalm.py"] = r"script not found: .*chalm.py; did you mean charlm.py\?"
    for name, message in missing.items():
        with pytest.raises(typer.BadParameter, match=message):
            source_code.directory_and_script(name, None, tmp_path)
    with pytest.raises(typer.BadParameter, match="is not in --code"):
        source_code.directory_and_script("charlm.py", Path("src"), tmp_path)


@pytest.mark.parametrize(
    ("words", "right", "other"),
    [
        (["train.py", "--ranks", "2", "--hold"], "--ranks 2 --hold train.py", "train.py -- --ranks 2 --hold"),
        (["train.py", "--lr", "1", "--ranks=2", "x"], "--ranks=2 train.py --lr 1 x", "train.py -- --lr 1 --ranks=2 x"),
        (["--module", "pkg", "a", "--hold"], "--hold --module pkg a", "--module pkg -- a --hold"),
        (["train.py", "--ranks"], "--ranks train.py", "train.py -- --ranks"),
        (["train.py", "--hold", "--", "--ranks"], "--hold train.py -- --ranks", "train.py -- --hold -- --ranks"),
    ],
)
def test_an_option_of_submit_after_the_script_is_refused_with_the_right_order(
    words: list[str], right: str, other: str
) -> None:
    with pytest.raises(typer.BadParameter) as raised:
        _arguments(words)
    for line in (right, other):
        assert f"`rekindle submit {line}`" in raised.value.message
    assert _arguments(other.split())


@pytest.mark.parametrize(
    ("words", "args"),
    [
        (["--ranks", "2", "train.py", "--name", "x"], ["--name", "x"]),
        (["train.py", "--", "--ranks", "2"], ["--ranks", "2"]),
        (["--", "train.py", "--ranks", "2"], ["--ranks", "2"]),
        (["--module", "pkg", "--", "a", "--ranks", "2"], ["a", "--ranks", "2"]),
        (["--recipe", "ddp", "--", "--ranks", "2"], ["--ranks", "2"]),
        (["train.py", "ranks", "--", "--hold"], ["ranks", "--", "--hold"]),
    ],
)
def test_a_script_gets_its_own_options_of_the_same_names(words: list[str], args: list[str]) -> None:
    assert _arguments(words) == args


def _arguments(words: list[str]) -> list[str]:
    """The script's arguments on a command line of submit, which is not carried out."""
    context = get_command(app).commands["submit"].make_context("submit", list(words))  # type: ignore[attr-defined]
    given = context.params
    _, _, args = target_and_args(given["command"], given["module"], given["recipe"])
    return require_order(words_before(context, args), args)


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


def test_ranks_are_a_number_or_a_range_that_the_server_validates() -> None:
    assert [parse_ranks(text) for text in ("2", "1:4", "4:1")] == [2, {"min": 1, "max": 4}, {"min": 4, "max": 1}]
    for text in ("", "two", "1:", ":4", "1:2:3", "1.5"):
        with pytest.raises(typer.BadParameter, match="MIN:MAX"):
            parse_ranks(text)


def test_a_time_is_seconds_or_has_units() -> None:
    texts = ("90", "45s", "30m", "2h", "1.5d", "1h30m", "2H", "0.5", "10min")
    assert [parse_seconds(text) for text in texts] == [90, 45, 1800, 7200, 129600, 5400, 7200, 0.5, 600]
    for text in ("", "h", "two", "1:30", "-1", "30m1h", "1e3", "5 h"):
        with pytest.raises(typer.BadParameter, match="as in 90, 30m, 2h"):
            parse_seconds(text)


def test_gpus_are_ranks_on_cuda_and_contradict_nothing() -> None:
    assert job_fields({"gpus": 4}) == {"ranks": 4, "device": "cuda"}
    assert job_fields({"gpus": 4, "ranks": 4, "device": "cuda"}) == {"ranks": 4, "device": "cuda"}
    for other in ({"ranks": 2}, {"ranks": {"min": 1, "max": 4}}, {"device": "cpu"}):
        with pytest.raises(typer.BadParameter, match=f"--gpus 4 means --{next(iter(other))}"):
            job_fields({"gpus": 4, **other})


def test_a_number_of_processes_that_torchrun_finds_out_is_refused_with_the_right_command() -> None:
    assert parse_process_count("4") == 4
    with pytest.raises(typer.BadParameter, match=r"rekindle submit --ranks 2 train\.py"):
        parse_process_count("gpu")


def test_arguments_of_restarts_are_split_as_a_shell_would() -> None:
    texts = ["--init_from=resume {exists:ckpt.pt}", "--resume '{latest:a b/*.pt}'"]
    assert split_arguments(texts) == ["--init_from=resume", "{exists:ckpt.pt}", "--resume", "{latest:a b/*.pt}"]
    with pytest.raises(typer.BadParameter, match="--on-restart"):
        split_arguments(["--name 'never closed"])


def test_a_variable_is_set_or_copied_and_its_value_may_hold_an_equals_sign() -> None:
    own = {"HF_TOKEN": "secret"}
    assert environment(["A=b=c", "E=", "HF_TOKEN"], own) == {"A": "b=c", "E": "", "HF_TOKEN": "secret"}
    with pytest.raises(typer.BadParameter, match="--env MISSING"):
        environment(["MISSING"], own)


def test_the_interpreter_is_a_path_or_that_of_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(typer.BadParameter, match="VIRTUAL_ENV is not set"):
        interpreter("active", tmp_path)
    monkeypatch.setenv("CONDA_PREFIX", "/conda")
    assert interpreter("active", tmp_path) == "/conda/bin/python"
    monkeypatch.setenv("VIRTUAL_ENV", "/envs/mine")
    assert interpreter("active", tmp_path) == "/envs/mine/bin/python"
    assert interpreter("/opt/bin/python", tmp_path) == "/opt/bin/python"
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to("/usr/bin/python3")
    assert interpreter("bin/python", tmp_path) == str(python), "the link of a virtual environment stays"


def fields(words: str) -> dict[str, Any]:
    """Fields of the request body that these options set."""
    command: Any = get_command(app)
    return job_fields(command.commands["submit"].make_context("submit", [*words.split(), "train.py"]).params)


def test_only_given_options_are_sent_those_of_snapshots_and_of_slurm_as_one_field() -> None:
    assert fields("") == {}
    sent = fields("--priority 0 --cold --ranks 1:4")
    assert sent == {"priority": 0, "warm": False, "ranks": {"min": 1, "max": 4}}, "a zero is given"
    policy = {"every_steps": 20, "auto": True, "keep": 5, "monitor": "-loss"}
    sent = fields("--every-steps 20 --every-auto --keep 5 --monitor -loss --name digits")
    assert sent == {"name": "digits", "snapshot": policy}
    assert fields("--slurm") == {"slurm": {}}
    slurm = {"partition": "gpu", "time": "8:00:00", "mem": "32G", "gres": "gpu:2", "gpus_per_node": "a100:4"}
    slurm |= {"prologue": ["one", "two"], "extra": ["--exclusive"]}
    given = "--slurm-mem 32G --gres gpu:2 --gpus-per-node a100:4 --slurm-prologue one --slurm-prologue two"
    sent = fields(f"--nodes 1:2 --partition gpu --slurm-time 8:00:00 {given} --slurm-extra=--exclusive")
    assert sent == {"nodes": {"min": 1, "max": 2}, "slurm": slurm}


def test_every_option_of_a_job_has_an_option_on_the_command_line() -> None:
    command: Any = get_command(app)
    names = {parameter.name for parameter in command.commands["submit"].params}
    given_otherwise = {"kind", "target", "args", "env_from", "min_ranks", "max_ranks", "min_nodes", "snapshot"}
    given_otherwise |= {"replay"}
    options = {field.name for field in (*dataclasses.fields(JobSpec), *dataclasses.fields(SnapshotPolicy))}
    assert options - names == given_otherwise | {"keep_last", "warnings"}


def test_code_from_git_needs_no_directory_and_excludes_other_sources() -> None:
    url = "https://h/r"
    assert source_code.locate("module", "pkg", None, git=url, ref=None) == (None, "pkg", {"git": url})
    assert source_code.locate("script", "a.py", None, git=url, ref="v2") == (None, "a.py", {"git": url, "ref": "v2"})
    with pytest.raises(typer.BadParameter, match="--ref v2 needs --git URL"):
        source_code.locate("script", "train", None, git=None, ref="v2")
    with pytest.raises(typer.BadParameter, match="--code src and --git https://h/r exclude each other"):
        source_code.locate("script", "train", Path("src"), git=url, ref=None)
    with pytest.raises(typer.BadParameter, match="a recipe brings its own code"):
        source_code.locate("recipe", "train", None, git=url, ref=None)


def test_the_commit_of_a_directory_is_sent_and_whether_tracked_files_differ_from_it(tmp_path: Path) -> None:
    assert source_code.revision(tmp_path) == source_code.revision(tmp_path / "none") == {}
    script = tmp_path / "project" / "train.py"
    script.parent.mkdir()
    script.write_text("1")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"], ["tag", "v1"]):
        subprocess.run([*git, *words], check=True)
    clean = source_code.revision(script.parent)
    assert (len(clean["commit"]), clean["dirty"]) == (40, False)
    script.write_text("2")
    assert source_code.revision(script.parent) == {**clean, "dirty": True}


def test_a_dry_run_fits_80_columns_and_names_the_jobs_that_would_be_stopped_as_far_as_they_may_be_seen() -> None:
    request: dict[str, Any] = {
        "name": "n" * 90,
        "owner": None,
        "priority": 5,
        "launch": "process",
        "device": "cuda:1,cuda:2",
    }
    request |= {"ranks": {"min": 1, "max": 1}, "nodes": {"min": 1, "max": 1}, "slurm": None, "warnings": ["w" * 90]}
    place = {
        "starts_in": 90.0,
        "queue_position": 2,
        "reason": "waiting for 2 of cuda:1 and cuda:2, 0 free",
        "devices": [],
    }
    seen = {"kind": "preempt", "id": "k3v9x0q2ab", "number": 7, "name": "old\x1b[2J", "owner": "ann"}
    hidden = {"kind": "resize", "id": None, "number": None, "name": None, "owner": None}
    code = {
        "code": {"git": "https://example.org/x", "commit": "c" * 40},
        "code_files": 1,
        "code_bytes": 1200,
        "slots": 2.0,
    }
    found: Any = {
        **request,
        **place,
        **code,
        "command": ["/p", "train.py", "a b", "x" * 90],
        "displaces": [seen, hidden],
    }
    lines = [line.plain for line in validated_lines(Console(width=80), found, 3)]
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    for part in (
        "3 jobs would be accepted",
        "train.py 'a b'",
        "1 as one process, without torchrun",
        "2 cuda slots",
        "in about 1 min 30 s, position 2 in the queue",
        "old (#7, k3v9x0q2ab) of ann",
        "shrinks a job of another person",
    ):
        assert part in text, part
    assert "\x1b" not in text
