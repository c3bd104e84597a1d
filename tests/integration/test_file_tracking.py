"""A rank records where its script writes, and the script notices nothing of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rekindle.contract.files import write_json
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.script_files import Checkpoint, Observations

HEAD = """
import os, sys, signal, time, pathlib, tempfile, multiprocessing
from rekindle.contract.run_dir.paths import RunDir
from rekindle.rank.file_tracking import track_files
run_dir = RunDir(pathlib.Path(sys.argv[1]))
os.chdir(run_dir.code)
before = set(os.listdir("/proc/self/fd"))
track_files(run_dir, run_dir.attempt(1).rank(0))
"""


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run_dir = RunDir(tmp_path / "run")
    for directory in (run_dir.code, run_dir.attempt(1).rank(0).root):
        directory.mkdir(parents=True)
    return run_dir


def records(run_dir: RunDir, script: str) -> list[dict[str, Any]]:
    """What is recorded of ``script``, without the first line."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + script, str(run_dir.root)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, *rest = map(json.loads, run_dir.attempt(1).rank(0).files.read_text().splitlines())
    assert first["use"] == "tracked"
    return rest


def uses(run_dir: RunDir, script: str) -> list[tuple[str, str]]:
    found = records(run_dir, script)
    return [(each["use"], each["path"].removeprefix(f"{run_dir.code}/")) for each in found]


def test_every_way_to_write_is_recorded_once_per_pattern_and_directory(run_dir: RunDir) -> None:
    script = """
open("a_1", "w").close(); open("a_2", "w").close(); os.mkdir("d")
pathlib.Path("d/../b").write_bytes(b"")
os.close(os.open(b"d/a_3", os.O_RDWR | os.O_CREAT))
with tempfile.NamedTemporaryFile(dir=".", delete=False) as file: pass  # an open of "."
os.replace(file.name, "c"); os.rename("d", "e")
open("/dev/null", "w").close(); open("a_1").close(); open(1, "w", closefd=False).close()
child = multiprocessing.get_context("fork").Process(target=lambda: open("of_a_child", "w").close())
child.start(); child.join()
os.system("true"); os.system("true")
"""
    assert uses(run_dir, script) == [
        ("written", "a_1"), ("written", "b"), ("written", "d/a_3"), ("written", str(run_dir.code)),
        ("renamed", "c"), ("renamed", "e"),
        ("written", "of_a_child"), ("spawned", ""),
    ]  # fmt: skip


def test_two_threads_that_overwrite_checkpoints_at_once_disturb_nothing(run_dir: RunDir) -> None:
    script = """
import io, threading, zipfile
from rekindle.rank import file_tracking
with zipfile.ZipFile(made := io.BytesIO(), "w") as file: file.writestr("archive/data.pkl", b"x")
whole_file = made.getvalue()
def save(name):
    with open(name, "wb") as file: file.write(whole_file)
save("a.pt"); save("b.pt")
turns, whole = threading.Barrier(2), file_tracking._is_whole
def wait_for_the_other(path, size):
    turns.wait()
    return whole(path, size)
file_tracking._is_whole = wait_for_the_other
threads = [threading.Thread(target=save, args=(name,)) for name in ("a.pt", "b.pt")]
[each.start() for each in threads]; [each.join() for each in threads]
assert {".a.pt.previous", ".b.pt.previous"} <= set(os.listdir("."))
"""
    assert uses(run_dir, script) == [("written", "a.pt"), ("written", "b.pt")]


def test_reading_is_recorded_of_known_checkpoints_only(run_dir: RunDir) -> None:
    for name in ("known.pt", "other.pt", "dir/part", "part"):
        path = run_dir.code / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    known = [
        Checkpoint(str(run_dir.code / "known.pt"), "torch", 1, 1.0, 1),
        Checkpoint(str(run_dir.code / "dir"), "torch", 1, 1.0, 1, files=["part"]),
    ]
    write_json(run_dir.observed, Observations(checkpoints=known).to_json())
    script = 'for name in ("known.pt", "known.pt", "other.pt", "dir/part", "part"): open(name).close()'
    assert uses(run_dir, script) == [("loaded", "known.pt"), ("loaded", "dir/part")]


def test_what_a_library_opens_by_itself_is_recorded_from_the_line_after_its_import_on(run_dir: RunDir) -> None:
    (run_dir.code / "safetensors").mkdir()
    (run_dir.code / "safetensors" / "__init__.py").touch()
    functions = "def safe_open(filename): pass\ndef serialize_file(tensors, filename): pass\n"
    (run_dir.code / "safetensors" / "torch.py").write_text(functions)
    script = """
sys.path.insert(0, ".")
from safetensors.torch import serialize_file
serialize_file({}, filename="a.safetensors")
"""
    assert uses(run_dir, script) == [("written", "a.safetensors")]


def test_the_script_sees_nothing_of_it(run_dir: RunDir) -> None:
    script = """
assert set(os.listdir("/proc/self/fd")) == before, "no descriptor is held"
for path in ("missing/x", "nul\\0x"):
    try: open(path, "w")
    except (FileNotFoundError, ValueError) as error: assert error.__traceback__.tb_next is None
    else: raise AssertionError(path)
class Odd(os.PathLike):
    def __fspath__(self): return "odd"
open(Odd(), "w").close()
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
try: open("x", "w")
except FileNotFoundError: pass
os.chdir(run_dir.code)
class Stop(Exception): pass
def stop(*_): raise Stop
signal.signal(signal.SIGALRM, stop)
stops = 0
for number in range(200):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005)
        while True: open(f"f{'x' * (number % 50)}", "w").close()
    except Stop: stops += 1
assert stops == 200, "an exception of the script's own handler is never lost"
"""
    assert ("written", "odd") in uses(run_dir, script)


def test_memory_and_file_are_bounded_and_a_full_disk_stops_nothing(run_dir: RunDir) -> None:
    script = """
import rekindle.rank.file_tracking as tracking
tracking.MAX_PATTERNS = 50
def name(number): return "n" + "".join(chr(97 + int(digit)) for digit in str(number))
for number in range(100): open(name(number), "w").close()
import shutil
shutil.rmtree(run_dir.attempt(1).rank(0).root)
tracking.MAX_PATTERNS = 1000
open("after", "w").close()
run_dir.attempt(1).rank(0).root.mkdir()
run_dir.attempt(1).rank(0).files.write_text('{"use": "tracked"}\\n')
open("again", "w").close()
for number in range(200, 220): open(name(number), "w").close()
"""
    assert len(uses(run_dir, script)) == 21
