"""The debugger of a rank over its socket: terminals come and leave as they like, and the script waits for them."""

import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = """
import sys
from contextlib import contextmanager
from pathlib import Path
from steps import batches

@contextmanager
def phase(name):
    print(f"phase {name}", flush=True)
    yield
    print("phase train", flush=True)

total = 0
for number in batches(Path(sys.argv[1]), phase):
    total += number
    print(f"total {total}", flush=True)
"""
STEPS = """
__name__ = "rekindle.training.steps"
from pathlib import Path
from rekindle.training.rank_debugger import open_debugger

def batches(path, phase):
    for number in (1, 2, 3):
        if number == 2:
            open_debugger(path, Path(__file__).parent / "none", phase, {"batch": number, "total": "shadowed"})
        yield number
"""


class Rank:
    """A process that opens a debugger in its second step."""

    def __init__(self, directory: Path) -> None:
        self.socket = directory / ("long" * 30) / "pdb.sock"
        self.socket.parent.mkdir(parents=True, mode=0o700)
        (directory / "train.py").write_text(SCRIPT)
        (directory / "steps.py").write_text(STEPS)
        command = [sys.executable, "train.py", str(self.socket)]
        self.process = subprocess.Popen(
            command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def attach(self) -> socket.socket:
        """A connection whose reads fail after half a minute."""
        directory = os.open(self.socket.parent, os.O_PATH)
        end = time.monotonic() + 30
        try:
            while True:
                terminal = socket.socket(socket.AF_UNIX)
                terminal.settimeout(30)
                try:
                    terminal.connect(f"/proc/self/fd/{directory}/{self.socket.name}")
                except OSError:
                    terminal.close()
                    assert time.monotonic() < end, "no debugger listens"
                    assert self.process.poll() is None, self.process.communicate()
                    time.sleep(0.05)
                else:
                    return terminal
        finally:
            os.close(directory)

    def ended(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    started = Rank(tmp_path)
    yield started
    started.process.kill()
    started.process.communicate()


def read_until(terminal: socket.socket, text: str) -> str:
    found = ""
    while text not in found:
        data = terminal.recv(1 << 16)
        assert data, f"{text!r} does not come: {found}"
        found += data.decode()
    return found


def test_a_terminal_that_leaves_changes_nothing_and_the_next_one_sees_where_the_rank_is(rank: Rank) -> None:
    with rank.attach() as first:
        shown = read_until(first, "(Pdb) ")
        assert "total += number" in shown
        assert stat.S_IMODE(rank.socket.stat().st_mode) == 0o600
        first.sendall(b"p (batch, total, number)\n")
        assert "(2, 1, 2)" in read_until(first, "(Pdb) ")
        first.sendall(b"p 'half a li")  # the connection breaks here
    with rank.attach() as second:
        again = read_until(second, "(Pdb) ")
        assert "total += number" in again
        second.sendall(b"total = 10\nn\np total\nc\n")
        assert "12" in read_until(second, "12\n")
        while second.recv(1 << 16):
            pass
    assert not rank.socket.exists()
    code, out, err = rank.ended()
    assert (code, out.split("\n")[:3]) == (0, ["total 1", "phase debugger", "phase train"]), err
    assert out.endswith("total 15\n")


def test_a_breakpoint_keeps_the_debugger_open_after_continue(rank: Rank) -> None:
    with rank.attach() as terminal:
        read_until(terminal, "(Pdb) ")
        terminal.sendall(b"b 16\nc\n")
        assert "print(f" in read_until(terminal, "(Pdb) -> print".replace("(Pdb) ", ""))
        terminal.sendall(b"cl 1\nc\n")
        while terminal.recv(1 << 16):
            pass
    assert rank.ended()[0] == 0


def test_quit_ends_the_script_with_an_exception_at_its_line(rank: Rank) -> None:
    with rank.attach() as terminal:
        read_until(terminal, "(Pdb) ")
        terminal.sendall(b"q\n")
        while terminal.recv(1 << 16):
            pass
    code, _, err = rank.ended()
    assert (code, "bdb.BdbQuit" in err, "line 15" in err) == (1, True, True), err
    assert not rank.socket.exists()
