from pathlib import Path

import pytest

from job_examples import a_submission as asked
from job_examples import cpu_machine, gpu_machine
from rekindle.contract.job_options import TargetKind
from rekindle.recipes.catalog import RECIPES
from rekindle_service import submission
from rekindle_service.jobs import validation
from rekindle_service.jobs.validation import validate
from rekindle_service.launch.placement import device_errors, place_here

MACHINE = cpu_machine(2)


@pytest.fixture
def code(tmp_path):
    directory = tmp_path / "code"
    directory.mkdir()
    (directory / "train.py").write_text("")
    return directory


def found_in(submission, known=lambda _: True):
    placement = place_here(submission, MACHINE)
    return [*validate(submission, placement, known), *device_errors(placement.spec, MACHINE)]


def broken(submission, known=()):
    return [(error.field, error.rule) for error in found_in(submission, set(known).__contains__)]


def the_error(submission):
    (error,) = found_in(submission)
    return error


def test_a_sound_submission_breaks_no_rule_and_an_absolute_script_brings_its_directory(code):
    assert broken(asked(code, max_ranks=2, args=["--lr", "0.1"], env={"A_1": "x"})) == []
    submission = asked(target=str(code / "train.py"))
    assert broken(submission) == []
    assert submission.code_dir == code


def test_standby_ranks_need_a_warm_start_on_this_machine(code):
    assert broken(asked(code, standby=True)) == []
    assert broken(asked(code, standby=True, warm=False)) == [("standby", "needs a warm start")]


def test_a_mirror_is_a_url_without_a_password_or_an_absolute_path_and_its_options_need_it(code, monkeypatch):
    monkeypatch.setattr(submission, "find_spec", lambda module: None if module == "gcsfs" else module)
    for url in ("s3://bucket", "s3://bucket/a/b", "sftp://ann@host:2222/runs", "/mnt/backup"):
        assert broken(asked(code, mirror=url, mirror_files=["out/*.pt"], require_mirror=True)) == [], url
    for url in (
        "bucket",
        "http://host/a",
        "s3://",
        "file:///a",
        "simplecache::s3://a",
        "s3://a?b=c",
        "/a/../b",
        "s3://[",
        "/a\n",
    ):
        assert [field for field, _ in broken(asked(code, mirror=url))] == ["mirror"], url
    secret = the_error(asked(code, mirror="sftp://ann:pass@host/runs"))
    assert secret.rule.startswith("must have no password")
    assert "pass" not in secret.value
    assert "pip install 'rekindle-torchrun[remote]'" in the_error(asked(code, mirror="gs://bucket/a")).rule
    assert broken(asked(code, require_mirror=True)) == [("require_mirror", "needs mirror, the URL to copy to")]
    outside = asked(code, mirror="/mnt", mirror_files=["../token", "/etc/passwd"])
    assert [field for field, _ in broken(outside)] == ["mirror_files"] * 2


def test_a_missing_script_is_refused_with_its_neighbours(code):
    error = the_error(asked(code, target="tran.py"))
    assert (error.field, error.value, error.hint) == ("script", "tran.py", "found there: train.py")


@pytest.mark.parametrize("target", ["../train.py", "x/../../train.py", "/etc/passwd", "train.py\0", ".", ""])
def test_a_script_outside_the_code_directory_or_none_at_all_is_refused(code, target):
    assert [field for field, _ in broken(asked(code, target=target))] == ["script"]


def test_a_script_next_to_the_code_directory_is_refused_with_the_directory_that_has_both(code):
    other = code.with_name("other")
    other.mkdir()
    (other / "train.py").write_text("")
    hint = the_error(asked(code, target="../other/train.py")).hint
    assert f"submit code.path {code.parent} with script other/train.py" in hint


@pytest.mark.parametrize(("name", "hint"), [("run.sh", "starts torchrun itself"), ("train.ipynb", "nbconvert")])
def test_what_is_no_script_of_python_is_refused_with_what_to_do(code, name, hint):
    (code / name).write_text("")
    error = the_error(asked(code, target=name))
    assert (error.field, hint in error.hint) == ("script", True)


def test_placeholders_and_patterns_that_do_not_exist_are_refused(code):
    restart = ["{exists:*.pt}", "--resume={latest:*.pt}", "{unknown}"]
    submission = asked(code, args=["{snapshots}", "{epoch}", "{{x}}"], on_restart=restart, exclude=["ok", "!"])
    assert [(error.field, error.value) for error in found_in(submission)] == [
        ("args", "{epoch}"),
        ("on_restart", "{unknown}"),
        ("exclude", "!"),
    ]


def test_a_script_that_is_a_link_out_of_the_directory_is_refused(code, tmp_path):
    (tmp_path / "secret.py").write_text("")
    (code / "link.py").symlink_to(tmp_path / "secret.py")
    assert broken(asked(code, target="link.py")) == [("script", f"must not be a link out of the code directory {code}")]


@pytest.mark.parametrize("directory", [Path("relative"), Path("/nowhere/at/all"), Path("/etc/passwd")])
def test_a_code_directory_must_exist(directory):
    assert broken(asked(directory)) == [("code.path", "must be an existing directory")]


def test_a_module_is_a_dotted_name():
    names = ["pkg.train", "train", "a-b", "a..b", ""]
    assert [name for name in names if not broken(asked(kind=TargetKind.MODULE, target=name))] == ["pkg.train", "train"]


def test_only_known_recipes_can_be_named(monkeypatch):
    monkeypatch.setattr(validation, "RECIPES", {"ddp": RECIPES["ddp"]})
    assert broken(asked(kind=TargetKind.RECIPE, target="ddp")) == []
    for name, hint in (("../../secret", "known here: ddp"), ("dpp", "did you mean 'ddp'?")):
        error = the_error(asked(kind=TargetKind.RECIPE, target=name))
        assert (error.field, error.hint) == ("recipe", hint)


@pytest.mark.parametrize(
    ("args", "hints"),
    [
        (["--epochs", "3", "--lr=0.1", "--no-shuffle", "--throttle", "-1"], []),
        (["--epoch", "3", "--bach-size=4"], ["did you mean '--epochs'?", "did you mean '--batch-size'?"]),
    ],
)
def test_an_option_that_a_recipe_does_not_have_is_refused_with_what_may_be_meant(args, hints):
    errors = found_in(asked(kind=TargetKind.RECIPE, target="ddp", args=args))
    assert [(error.field, error.hint) for error in errors] == [("args", hint) for hint in hints]
    assert all(error.rule == "must be options of the recipe ddp" for error in errors)


@pytest.mark.parametrize(
    ("spec", "field", "rule"),
    [
        ({"max_ranks": 3}, "ranks", "exceeds the 2 CPU slots of this machine"),
        ({"device": "cuda"}, "device", "this machine has no GPU"),
        ({"after": ["a", "b"]}, "after", "must name jobs that exist"),
        ({"code": None}, "script", "is relative to the code directory, but none is given"),
        ({"kind": TargetKind.RECIPE, "target": "ddp", "on_restart": ["--frobnicate"]}, "on_restart",
         "must be options of the recipe ddp"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_reported_with_its_field(code, spec, field, rule):
    spec = {"code": code, **spec}
    assert broken(asked(spec.pop("code"), **spec), known=["a"]) == [(field, rule)]


@pytest.mark.parametrize(("least", "most"), [(0, 1), (2, 1), (-1, -1)])
def test_a_senseless_range_of_ranks_is_refused(code, least, most):
    assert ("ranks", "must be at least 1, and min at most max") in broken(asked(code, min_ranks=least, max_ranks=most))


def test_auto_takes_gpus_where_there_are_any(code):
    assert place_here(asked(code), gpu_machine(1)).spec.device == "cuda"
    assert place_here(asked(code), MACHINE).spec.device == "cpu"


@pytest.mark.parametrize(
    "name", ["1A", "A-B", "A=B", "", "A\0", "REKINDLE_TOKEN", "RANK", "PET_NNODES", "TORCHELASTIC_X"]
)
def test_a_variable_that_cannot_or_must_not_be_set_is_refused_without_its_value(code, name):
    error = the_error(asked(code, env={name: "secret"}))
    assert error.field == "env"
    assert "secret" not in str(error)
    assert "secret" not in str(the_error(asked(code, env={"KEY": "secret\0"})))


def test_every_broken_rule_is_reported_at_once(code):
    fields = [field for field, _ in broken(asked(code, target="no.py", max_ranks=9, after=["x"], args=["\0"]))]
    assert fields == ["script", "args", "after", "ranks"]
