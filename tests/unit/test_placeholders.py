import os
from pathlib import Path

import pytest

from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import TargetKind
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.placeholders import attempt_arguments, unknown_placeholders


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run_dir = RunDir(tmp_path / "runs" / "job0000001")
    for directory in (run_dir.code, run_dir.snapshots):
        directory.mkdir(parents=True)
    return run_dir


def filled(run_dir: RunDir, *args: str, attempt: int = 1, **options: object) -> list[str]:
    spec = JobSpec("n", TargetKind.SCRIPT, "t.py", "/p", args=list(args), **options)  # type: ignore[arg-type]
    return attempt_arguments(spec, run_dir, attempt)


def saved(path: Path, at: int, text: str = "x") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, ns=(at, at))
    return str(path)


def test_each_placeholder_has_its_value_wherever_it_stands_in_an_argument(run_dir: RunDir) -> None:
    args = ("--out={snapshots}/x", "{run}", "{job}.{attempt}")
    expected = [f"--out={run_dir.snapshots}/x", str(run_dir.root), "job0000001.7"]
    assert filled(run_dir, *args, attempt=7) == expected


TEXTS = ['{"lr": 0.1, "a": {"b": []}}', "{}", "{0}", "${dir}/x", "{lr:0.1}", "{a b}", "{", "}{", "{a.b}", "{1: 2}"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, text) for text in TEXTS),
        ("{{epoch}}", "{epoch}"),
        ("{{{job}}}", "{{job}}"),
        ("{{latest:*.pt}}", "{latest:*.pt}"),
        ("x{{job}}y", "x{job}y"),
    ],
)
def test_other_braces_are_text_and_doubled_ones_an_escape(run_dir: RunDir, text: str, expected: str) -> None:
    assert unknown_placeholders([text], conditions=False) == []
    assert filled(run_dir, text) == [expected]


def test_unknown_placeholders_are_found_and_conditions_only_where_they_belong() -> None:
    assert unknown_placeholders(["--name={epoch}-{job}", "{x}"], conditions=False) == ["{epoch}", "{x}"]
    assert unknown_placeholders(["{exists:*.pt}"], conditions=True) == []
    assert unknown_placeholders(["{exists:*.pt}"], conditions=False) == ["{exists:*.pt}"]
    assert unknown_placeholders(["--x={exists:*.pt}"], conditions=True) == ["{exists:*.pt}"]


def test_the_latest_file_is_found_in_the_working_directory_the_snapshots_or_by_an_absolute_path(
    run_dir: RunDir, tmp_path: Path
) -> None:
    saved(run_dir.code / "epoch-9.pt", 5)
    latest = saved(run_dir.snapshots / "epoch-10.pt", 7)
    saved(run_dir.snapshots / "epoch-11.pt", 9, text="")
    saved(run_dir.snapshots / "epoch-12.pt.torn-3", 9)
    assert filled(run_dir, "--resume", "{latest:*.pt}") == ["--resume", latest]
    assert filled(run_dir, "{latest:epoch*}") == [latest], "neither an empty file nor one that was moved aside"
    elsewhere = saved(tmp_path / "data" / "deep" / "er" / "last.ckpt", 1)
    assert filled(run_dir, f"--resume={{latest:{tmp_path}/data/**/*.ckpt}}") == [f"--resume={elsewhere}"]


def test_directories_count_and_of_equal_times_the_later_number(run_dir: RunDir) -> None:
    for step in (99, 100):
        saved(run_dir.code / f"checkpoint-{step}" / "model.pt", 3)
        os.utime(run_dir.code / f"checkpoint-{step}", ns=(3, 3))
    (run_dir.code / "checkpoint-101").mkdir()
    assert filled(run_dir, "{latest:checkpoint-*}") == [str(run_dir.code / "checkpoint-100")]


@pytest.mark.parametrize(
    ("args", "left"),
    [
        (["--a", "1", "--resume", "{latest:*.pt}", "--b"], ["--a", "1", "--b"]),
        (["--a", "--resume={latest:*.pt}", "--b"], ["--a", "--b"]),
        (["--lr=1", "{latest:*.pt}"], ["--lr=1"]),
        (["--flag", "resume={latest:*.pt}"], ["--flag"]),
        (["-1", "{latest:*.pt}"], ["-1"]),
        (["-r", "{latest:*.pt}"], []),
    ],
)
def test_an_argument_without_its_file_is_omitted_with_its_option(
    run_dir: RunDir, args: list[str], left: list[str]
) -> None:
    assert filled(run_dir, *args) == left


def test_restart_arguments_come_from_the_second_attempt_on_and_in_a_job_that_continues_another(run_dir: RunDir) -> None:
    options = {"on_restart": ["--resume", "{latest:*.pt}", "--again"]}
    assert filled(run_dir, "a", **options) == ["a"]
    assert filled(run_dir, "a", attempt=2, **options) == ["a", "--again"]
    latest = saved(run_dir.code / "a.pt", 1)
    assert filled(run_dir, "a", attempt=2, **options) == ["a", "--resume", latest, "--again"]
    assert filled(run_dir, "a", continue_from="job0000002", **options) == ["a", "--resume", latest, "--again"]


def test_a_condition_that_is_not_met_omits_all_restart_arguments(run_dir: RunDir) -> None:
    options = {"on_restart": ["--init_from=resume", "{exists:out/ckpt.pt}"]}
    assert filled(run_dir, "a", attempt=2, **options) == ["a"]
    saved(run_dir.code / "out" / "ckpt.pt", 1)
    assert filled(run_dir, "a", attempt=2, **options) == ["a", "--init_from=resume"]
