"""The copy of a job's code: what is in it, which links it keeps, and what is too much."""

import errno
import os
import resource
import shutil
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from rekindle_service.jobs.packaging import code_copy
from rekindle_service.jobs.packaging.code_copy import CodeCopyError, copy_code, open_code
from rekindle_service.jobs.packaging.ignore_rules import CopyOptions
from swaps import swapping

FILES = {"train.py", "data/a.bin", "data/keep.txt", "src/data/b.bin", "src/model.py", "out/last.ckpt", "notes.md"}


@pytest.fixture
def source(tmp_path):
    directory = tmp_path / "repository" / "project"
    for name in FILES:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(name)
    return directory


@pytest.fixture
def copy(source, tmp_path):
    def run(home=None, **options):
        copy_from(source, tmp_path / "copy", exclude=home or tmp_path / "home", options=CopyOptions(**options))
        return tmp_path / "copy"

    return run


def copy_from(source, target, **options):
    with open_code(source, **options) as (tree, found):
        copy_code(tree, found, target)


def names(directory):
    """Relative paths of files and links."""
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_symlink() or not path.is_dir()}


def test_a_copy_has_every_file_with_its_mode_and_is_not_touched_by_later_edits(source, copy):
    (source / "tool.sh").touch(0o755)
    copied = copy()
    (source / "train.py").write_text("print(2)\n")
    assert names(copied) == {*FILES, "tool.sh"}
    assert (copied / "train.py").read_text() == "train.py"
    assert os.access(copied / "tool.sh", os.X_OK)


def test_what_is_no_code_is_not_copied_nor_are_virtual_environments_of_any_name(source, copy):
    for directory in (".git", ".venv", "venv", "src/__pycache__", "node_modules"):
        (source / directory).mkdir()
        (source / directory / "file").write_text("x")
    for sign in ("pyvenv.cfg", "conda-meta"):
        environment = source / "src" / f"my-env-with-{sign}"
        (environment / sign).mkdir(parents=True)
        (environment / "python").symlink_to("/usr/bin/python3")
    (source / "old.pyc").write_bytes(b"x")
    os.mkfifo(source / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(source / "socket"))
    copied = copy()
    assert names(copied) == FILES
    assert {path.name for path in copied.rglob("*") if path.is_dir()} == {"data", "src", "out"}


def test_a_home_inside_the_code_directory_is_not_copied_into_itself(source, copy):
    (source / ".rekindle" / "runs").mkdir(parents=True)
    (source / ".rekindle" / "token").write_text("secret")
    assert not (copy(source / ".rekindle") / ".rekindle").exists()


def test_hostile_names_are_copied_as_they_are(source, copy):
    for name in ("-rf", "a b", "new\nline", "ünïcödé", os.fsdecode(b"\xff\xfe"), "$(reboot)", "'; DROP TABLE job; --"):
        (source / name).write_text(repr(name))
    assert names(copy()) == names(source)


# --- links


def test_links_inside_are_kept_and_lead_into_the_copy(source, copy):
    (source / "data" / "relative").symlink_to("../train.py")
    (source / "data" / "absolute").symlink_to(source / "src")
    (source / "data" / "roundabout").symlink_to(f"../../{source.name}/train.py")
    (source / "data" / "dangling").symlink_to("nowhere")
    copied = copy()
    assert (copied / "data" / "relative").resolve() == copied / "train.py"
    assert (copied / "data" / "absolute").resolve() == copied / "src"
    assert (copied / "data" / "roundabout").resolve() == copied / "train.py"
    assert (copied / "data" / "dangling").is_symlink()


@pytest.mark.parametrize("goal", ["/etc/passwd", "../../outside", "../src/../../outside"])
def test_a_link_out_of_the_directory_is_refused_by_name(source, copy, goal):
    (source / "src" / "leak").symlink_to(goal)
    with pytest.raises(CodeCopyError, match="src/leak points to"):
        copy()


def test_a_link_by_way_of_another_link_is_seen_through(source, copy):
    (source / "inner").symlink_to("second")
    (source / "second").symlink_to("/etc")
    with pytest.raises(CodeCopyError, match="points to /etc"):
        copy()


def test_a_loop_of_links_does_no_harm(source, copy):
    (source / "self").symlink_to("self")
    (source / "src" / "up").symlink_to("..")
    assert "src/up" in names(copy())


def test_links_that_lead_out_are_kept_on_request(source, copy, tmp_path):
    (tmp_path / "imagenet").mkdir()
    (source / "images").symlink_to("../../imagenet")
    (source / "inner").symlink_to("train.py")
    with pytest.raises(CodeCopyError, match="keep_links"):
        copy()
    copied = copy(keep_links=True)
    assert (copied / "images").readlink() == tmp_path / "imagenet"
    assert (copied / "inner").readlink() == Path("train.py")


# --- too much


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("MAX_BYTES", 3_000_000, r"at most 3 MB.*biggest here: weights \(4 MB, 1 files\)"),
        ("MAX_FILES", 10, r"in 10 files.*here: images \(0 MB, 11 files\).*--exclude images.*\.rekindleignore"),
    ],
)
def test_too_much_code_is_refused_with_its_biggest_parts_and_the_option_that_helps(
    source, copy, monkeypatch, tmp_path, limit, value, message
):
    monkeypatch.setattr(code_copy, limit, value)
    for directory in ("weights", "images"):
        (source / directory).mkdir()
    (source / "weights" / "model.pt").write_bytes(bytes(4_000_000))
    for number in range(11):
        (source / "images" / f"{number}.png").touch()
    with pytest.raises(CodeCopyError, match=message):
        copy()
    assert not (tmp_path / "copy").exists()


# --- patterns


@pytest.mark.parametrize(
    ("patterns", "left_out"),
    [
        ([], set()),
        (["data"], {"data/a.bin", "data/keep.txt", "src/data/b.bin"}),
        (["/data/"], {"data/a.bin", "data/keep.txt"}),
        (["*.bin", "!src/data/b.bin"], {"data/a.bin"}),
        (["# a comment", "", "out/*.ckpt", "**/*.md"], {"out/last.ckpt", "notes.md"}),
    ],
)
def test_patterns_are_those_of_a_gitignore(copy, patterns, left_out):
    assert names(copy(exclude=patterns)) == FILES - left_out


def test_the_ignore_file_counts_always_and_gitignore_on_request(source, copy):
    (source.parent / ".git").mkdir()
    (source.parent / ".gitignore").write_text("*.md\nproject/out/\n")
    (source / ".gitignore").write_text("data/\n")
    (source / "src" / ".gitignore").write_text("!data/\n*.py\n")
    (source / ".rekindleignore").write_text("!notes.md\n*.ckpt\n")
    files = {*FILES, ".gitignore", "src/.gitignore", ".rekindleignore"}
    copied = copy()
    assert names(copied) == files - {"out/last.ckpt"}
    shutil.rmtree(copied)
    rest = {"train.py", "notes.md", "src/data/b.bin", ".gitignore", "src/.gitignore", ".rekindleignore"}
    assert names(copy(gitignore=True)) == rest, "deeper files decide before their parents, .rekindleignore before git's"


def test_the_request_decides_before_the_files(source, copy):
    (source / ".rekindleignore").write_text("data/\nout/\n")
    assert {"data/a.bin", "data/keep.txt"} <= names(copy(exclude=["!/data/", "*.py"]))


def test_what_is_excluded_neither_counts_nor_is_read(source, copy, monkeypatch):
    monkeypatch.setattr(code_copy, "MAX_FILES", len(FILES))
    (source / "data" / "leak").symlink_to("/etc")
    (source / "data" / "more").write_text("")
    with pytest.raises(CodeCopyError):
        copy()
    assert "train.py" in names(copy(exclude=["/data"]))


@pytest.mark.parametrize(
    ("exclude", "found"),
    [
        ([], {"train.py", "latest.py", "current/model.py"}),
        (["train.py"], {"current/model.py"}),
        (["src"], {"train.py", "latest.py"}),
        (["latest.py", "current"], {"train.py"}),
    ],
)
def test_what_the_copy_will_have_is_known_before_it_is_made_also_behind_links(source, tmp_path, exclude, found):
    (source / "latest.py").symlink_to("train.py")
    (source / "current").symlink_to("src")
    (source / "loop").symlink_to("loop")
    with open_code(source, exclude=tmp_path / "home", options=CopyOptions(exclude)) as (tree, inventory):
        named = ("train.py", "latest.py", "current/model.py", "current/none.py", "src", "loop/x.py")
        assert {name for name in named if inventory.has_file(Path(name))} == found
        copy_code(tree, inventory, tmp_path / "copy")
    assert {name for name in named[:4] if (tmp_path / "copy" / name).is_file()} == found


def test_a_wrong_pattern_is_refused_with_its_position(source, copy):
    (source / ".rekindleignore").write_text("ok\n!\n")
    with pytest.raises(CodeCopyError, match=r"\.rekindleignore.*'!'"):
        copy()


@pytest.mark.long
def test_files_and_directories_that_are_swapped_for_links_meanwhile_show_nothing(source, tmp_path):
    """A person may swap what the server has looked at for a link to what only the server may read."""
    secrets = tmp_path / "server"
    for name in FILES:
        (secrets / name).parent.mkdir(parents=True, exist_ok=True)
        (secrets / name).write_text("secret")
    goals = {source / name: secrets / name for name in ("train.py", "data")} | {source: secrets}
    copied = 0
    with swapping(goals) as swaps:
        while copied < 200 or swaps.count < 10_000:
            target = tmp_path / "copy"
            with suppress(CodeCopyError):
                copy_from(source, target, exclude=tmp_path / "home", check=lambda root: refuse(root, secrets))
                copied += 1
            found = [path for path in names(target) if not (target / path).is_symlink()] if target.exists() else []
            assert [path for path in found if "secret" in (target / path).read_text()] == []
            shutil.rmtree(target, ignore_errors=True)


def test_no_more_of_a_file_is_copied_than_it_had_when_it_was_found(tmp_path):
    """A file may grow as fast as it is copied, and those of /proc show what is the server's."""
    copied = tmp_path / "copy"
    copy_from(Path("/proc/self"), copied, exclude=tmp_path / "home", options=CopyOptions(["*", "!/environ"]))
    assert {name: (copied / name).read_bytes() for name in names(copied)} == {"environ": b""}


def refuse(root, secrets):
    """Do what the server does for those who must not read its home."""
    if root.is_relative_to(secrets):
        raise CodeCopyError("must not be in the server's home", "copy the code elsewhere")


def test_a_lack_of_descriptors_is_no_finding_about_the_code(source, tmp_path):
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    outcomes = []
    for spare in range(12):
        os.close(free := os.dup(0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + spare, limit[1]))
        try:
            copy_from(source, tmp_path / f"copy-{spare}", exclude=tmp_path / "home")
            outcomes.append(0)
        except OSError as error:
            outcomes.append(error.errno)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert {*outcomes} == {errno.EMFILE, 0}, outcomes
