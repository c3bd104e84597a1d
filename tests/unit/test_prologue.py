"""The lines that a node runs before its keeper, in a real bash; a command in its place shows what it gets."""

import subprocess
import sys

import pytest

_START = """
import os, sys
from rekindle.keeper.cluster.node_start import with_prologue
os.execv("/bin/bash", ["/bin/bash", "-c", with_prologue(sys.argv[1:], ["/usr/bin/env", "-0"], "n1")])
"""
_OURS = {"PYTHONPATH": "/it's ours", "REKINDLE_RUN_DIR": "/the run", "REKINDLE_HOST": "n1"}


def run(*lines: str) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": "/usr/bin:/bin", **_OURS}
    command = [sys.executable, "-c", _START, *lines]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def variables(*lines: str) -> dict[str, str]:
    ended = run(*lines)
    assert ended.returncode == 0, ended.stderr
    return dict(each.partition("=")[::2] for each in ended.stdout.split("\0") if each)


def test_what_a_line_sets_stays_for_the_next_ones_and_for_the_keeper() -> None:
    found = variables("A='one two'", 'export B="$A, $REKINDLE_HOST"', "PATH=/only:$PATH", "declare -x C=3", "cd /")
    assert (found["B"], found["C"], found["PATH"]) == ("one two, n1", "3", "/only:/usr/bin:/bin")
    assert "A" not in found
    assert not [name for name in found if name.startswith("rekindle_")]


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("unset PYTHONPATH REKINDLE_RUN_DIR REKINDLE_HOST", []),
        ("export PYTHONPATH=/mod REKINDLE_HOST=n9", ["/mod"]),
        ("set -eu; PATH=; IFS=1; REKINDLE_RUN_DIR=", ["/it's ours"]),
    ],
)
def test_what_the_keeper_lives_by_stays_whatever_a_line_does_to_it(line: str, path: list[str]) -> None:
    found = variables(line)
    assert found["PYTHONPATH"].split(":") == [_OURS["PYTHONPATH"], *path]
    assert {name: found[name] for name in _OURS if name != "PYTHONPATH"} == {
        "REKINDLE_RUN_DIR": "/the run",
        "REKINDLE_HOST": "n1",
    }


@pytest.mark.parametrize(
    ("line", "code", "printed"),
    [
        ("no-such-module load cuda", 127, "no-such-module: command not found"),
        ("echo first; echo the reason >&2; echo; (exit 4)", 4, "the reason"),
        ("printf 'no end of line'; exit 7", 7, "no end of line"),
        ("set -u; echo $MISSING", 127, "MISSING: unbound variable"),
        ("if then", 2, "if then"),
        ("exit 0", 0, ""),
        ('false # \'"%s"', 1, ""),
    ],
)
def test_the_last_line_names_the_line_that_failed_and_what_it_printed_last(line: str, code: int, printed: str) -> None:
    ended = run("echo before", line, "echo never")
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(f'the prologue failed on n1: "{line}" ended with exit code {code}')
    assert printed in last.partition(f"exit code {code}")[2]
    assert ended.stderr.startswith("before\n")
    assert "never" not in ended.stderr + ended.stdout
