"""An agent that waits for its attempt, and whose keeper has closed the pipe."""

import subprocess
import sys

import pytest

_AGENT = """
import os, sys
from rekindle.keeper.torchrun.latch import wait_for_attempt
reader, writer = os.pipe()
os.write(writer, os.fsencode(sys.argv[1]))
os.close(writer)
wait_for_attempt(reader)
print("it has begun")
"""


@pytest.mark.parametrize("written", ["", '[{"RANK": "0"}, '])
def test_an_agent_without_an_attempt_ends_without_output(written: str) -> None:
    ended = subprocess.run([sys.executable, "-c", _AGENT, written], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
