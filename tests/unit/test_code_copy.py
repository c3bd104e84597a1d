import os
import socket

import pytest

from rekindle_service.jobs.packaging import code_copy
from rekindle_service.jobs.packaging.code_copy import CodeCopyError, copy_code


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    (folder / "package").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "package" / "__init__.py").write_text("")
    return folder


@pytest.fixture
def copy(source, tmp_path):
    def run(exclude=None):
        copy_code(source, tmp_path / "copy", exclude=exclude or tmp_path / "home")
        return tmp_path / "copy"

    return run


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_copy_has_every_file_and_is_not_touched_by_later_edits(source, copy):
    copied = copy()
    (source / "train.py").write_text("print(2)\n")
    assert names(copied) == ["package", "package/__init__.py", "train.py"]
    assert (copied / "train.py").read_text() == "print(1)\n"


def test_what_is_no_code_is_left_out(source, copy):
    for folder in (".git", ".venv", "venv", "package/__pycache__", "node_modules"):
        (source / folder).mkdir()
        (source / folder / "file").write_text("x")
    (source / "old.pyc").write_bytes(b"x")
    os.mkfifo(source / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(source / "socket"))
    assert names(copy()) == ["package", "package/__init__.py", "train.py"]


@pytest.mark.parametrize("sign", ["pyvenv.cfg", "conda-meta"])
def test_a_virtual_environment_of_any_name_is_left_out(source, copy, sign):
    (source / "package" / "my-env" / "bin").mkdir(parents=True)
    (source / "package" / "my-env" / sign).mkdir()
    (source / "package" / "my-env" / "bin" / "python").symlink_to("/usr/bin/python3")
    assert names(copy()) == ["package", "package/__init__.py", "train.py"]


def test_a_home_inside_the_code_folder_is_not_copied_into_itself(source, copy):
    (source / ".rekindle" / "runs").mkdir(parents=True)
    (source / ".rekindle" / "token").write_text("secret")
    assert ".rekindle" not in names(copy(exclude=source / ".rekindle"))


def test_the_mode_of_a_file_is_kept(source, copy):
    (source / "tool.sh").write_text("#!/bin/sh\n")
    (source / "tool.sh").chmod(0o755)
    assert os.access(copy() / "tool.sh", os.X_OK)


def test_links_inside_are_kept_and_lead_into_the_copy(source, copy):
    (source / "data").mkdir()
    (source / "data" / "relative").symlink_to("../train.py")
    (source / "data" / "absolute").symlink_to(source / "package")
    (source / "data" / "roundabout").symlink_to(f"../../{source.name}/train.py")
    (source / "data" / "dangling").symlink_to("nowhere")
    copied = copy()
    assert (copied / "data" / "relative").resolve() == copied / "train.py"
    assert (copied / "data" / "absolute").resolve() == copied / "package"
    assert (copied / "data" / "roundabout").resolve() == copied / "train.py"
    assert (copied / "data" / "dangling").is_symlink()


@pytest.mark.parametrize("goal", ["/etc/passwd", "../../outside", "../package/../../outside"])
def test_a_link_out_of_the_folder_is_refused_by_name(source, copy, goal):
    (source / "package" / "leak").symlink_to(goal)
    with pytest.raises(CodeCopyError, match="package/leak points to"):
        copy()


def test_a_link_by_way_of_another_link_is_seen_through(source, copy):
    (source / "inner").symlink_to("second")
    (source / "second").symlink_to("/etc")
    with pytest.raises(CodeCopyError, match="points to /etc"):
        copy()


def test_a_loop_of_links_does_no_harm(source, copy):
    (source / "self").symlink_to("self")
    (source / "package" / "up").symlink_to("..")
    assert "package/up" in names(copy())


def test_a_folder_that_is_too_heavy_is_refused_with_its_heaviest_parts(source, copy, monkeypatch):
    monkeypatch.setattr(code_copy, "MAX_BYTES", 3_000_000)
    (source / "weights").mkdir()
    (source / "weights" / "model.pt").write_bytes(bytes(4_000_000))
    with pytest.raises(CodeCopyError, match=r"at most 3 MB.*biggest here: weights \(4 MB, 1 files\)"):
        copy()


def test_a_folder_with_too_many_files_is_refused_with_its_fullest_parts(source, copy, monkeypatch, tmp_path):
    monkeypatch.setattr(code_copy, "MAX_FILES", 10)
    (source / "images").mkdir()
    for number in range(11):
        (source / "images" / f"{number}.png").write_bytes(b"")
    with pytest.raises(CodeCopyError, match=r"in 10 files.*images \(0 MB, 11 files\)"):
        copy()
    assert not (tmp_path / "copy").exists()


def test_hostile_names_are_copied_as_they_are(source, copy):
    for name in ("-rf", "a b", "new\nline", "ünïcödé", os.fsdecode(b"\xff\xfe"), "$(reboot)", "'; DROP TABLE job; --"):
        (source / name).write_text(repr(name))
    copied = copy()
    assert names(copied) == names(source)
