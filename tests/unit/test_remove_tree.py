"""Removing what a job has left in its directory, as a user whom modes bind."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rekindle_service.retention.remove_tree import remove_tree

NOBODY = 65534


def test_a_tree_with_links_fifos_sockets_and_files_is_removed_and_no_link_is_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "data").write_text("1")
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "file").write_text("1")
    (root / "a" / "b" / "link").symlink_to(kept)
    (root / "dangling").symlink_to("nowhere")
    os.mkfifo(root / "a" / "fifo")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(root / "s"))
    assert remove_tree(root).done
    assert not root.exists()
    assert (kept / "data").read_text() == "1"


def test_what_is_absent_is_removed_already_and_a_link_is_removed_itself(tmp_path: Path) -> None:
    assert remove_tree(tmp_path / "nothing").done
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    assert remove_tree(tmp_path / "link").done
    assert (tmp_path / "kept").is_dir()
    assert not (tmp_path / "link").is_symlink()


def test_a_tree_deeper_than_any_path_may_be_long_is_removed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    script = "import os, sys\nos.chdir(sys.argv[1])\nfor _ in range(1100): os.mkdir('abc'); os.chdir('abc')"
    subprocess.run([sys.executable, "-c", script, str(root)], check=True)
    assert remove_tree(root).done
    assert not root.exists()


def test_names_that_a_job_has_chosen_to_collide_are_removed_too(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in (".removed-1", ".removed-0-1", "\udcff".encode(errors="surrogateescape").decode(errors="replace")):
        (root / name / "x" / name).mkdir(parents=True)
    assert remove_tree(root).done


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_directories_without_permission_get_it_as_any_user(tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from rekindle_service.retention.remove_tree import remove_tree
root = Path(sys.argv[1])
os.setgid(65534); os.setuid(65534)
for mode in (0o500, 0o000, 0o300):
    inner = root / f"mode-{mode:o}" / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").write_text("1")
    for each in (inner, inner.parent, inner.parent.parent):
        each.chmod(mode)
root.chmod(0o500)
print(remove_tree(root))
"""
    place = tmp_path / "place"
    (place / "root").mkdir(parents=True)
    for path in (place, place / "root"):
        os.chown(path, NOBODY, NOBODY)
    for parent in [place, *place.parents[:-1]]:
        if not parent.stat().st_mode & 1:
            parent.chmod(parent.stat().st_mode | 0o711)
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", script, str(place / "root")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "done=True" in done.stdout, done
    assert not (place / "root").exists()


def test_what_cannot_be_removed_is_named_and_the_rest_is_removed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    for number in range(20):
        (root / "a" / str(number)).write_text("1")
    if subprocess.run(["chattr", "+i", str(root / "a" / "7")], capture_output=True, check=False).returncode:
        pytest.skip("this file system or user cannot make a file immutable")
    try:
        removal = remove_tree(root)
        assert (removal.done, removal.failures) == (False, 1)
        assert removal.reason == "7: Operation not permitted"
        assert [path.name for path in root.rglob("*") if path.is_file()] == ["7"]
    finally:
        subprocess.run(["chattr", "-R", "-i", str(root)], check=False)
    assert remove_tree(root).done


def test_a_mounted_file_system_keeps_its_content(tmp_path: Path) -> None:
    data, point = tmp_path / "data", tmp_path / "root" / "a" / "data"
    data.mkdir()
    (data / "set.bin").write_text("1")
    point.mkdir(parents=True)
    if subprocess.run(["mount", "--bind", str(data), str(point)], capture_output=True, check=False).returncode:
        pytest.skip("this user cannot mount")
    try:
        removal = remove_tree(tmp_path / "root")
        assert not removal.done
        assert removal.reason == "data: Device or resource busy"
        assert (data / "set.bin").read_text() == "1"
    finally:
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for mount in mounts:
            if mount.startswith(str(tmp_path)):
                subprocess.run(["umount", mount], check=True)
    assert remove_tree(tmp_path / "root").done


def test_a_removal_that_is_stopped_continues_later(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for number in range(9):
        (root / str(number) / "x").mkdir(parents=True)
    polls = iter([False] * 5 + [True] * 1000)
    removal = remove_tree(root, lambda: next(polls))
    assert (removal.done, removal.reason) == (False, "")
    assert remove_tree(root).done
