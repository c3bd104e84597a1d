"""What `rekindle doctor --slurm` makes of the answers of a cluster."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from rekindle_service.cli.checks.finding import Level
from rekindle_service.cli.checks.slurm import judge, timeouts

HOME = Path("/srv/lab/rekindle")


def an_answer(host: str, **differs: Any) -> dict[str, Any]:
    answer = {"host": host, "time": time.time(), "uid": os.getuid(), "python": "3.12.1", "sees": True, "torch": "2.9.0",
              "address": "192.168.1.11", "connects": True}  # fmt: skip
    return {**answer, **differs}


def findings(*answers: dict[str, Any]) -> dict[str, tuple[Level, str]]:
    now = time.time()
    return {each.name: (each.level, f"{each.detail} {each.advice}") for each in judge(answers, HOME, now - 1, now + 1)}


def test_a_sound_cluster_passes() -> None:
    assert {level for level, _ in findings(an_answer("n1"), an_answer("n2")).values()} == {Level.OK}


@pytest.mark.parametrize(
    ("differs", "name", "words"),
    [
        ({"sees": False, "why": "No such file"}, "directory", "n2 does not see /srv/lab/rekindle (No such file)"),
        ({"time": 0.0}, "clocks", "behind"),
        ({"uid": 77}, "user", "number 77 on n2"),
        ({"torch": None}, "torch", "n2: none"),
        ({"torch": "2.8.0"}, "torch", "differs: n1: 2.9.0, n2: 2.8.0"),
        ({"python": "3.11.2"}, "python", "n2: 3.11.2"),
        ({"address": "127.0.1.1"}, "addresses", "n2 resolves its own name to 127.0.1.1"),
        ({"connects": "No route to host"}, "connections", "n2: No route to host"),
    ],
)
def test_what_one_node_lacks_is_named(differs: dict[str, Any], name: str, words: str) -> None:
    level, text = findings(an_answer("n1"), an_answer("n2", **differs))[name]
    assert level is not Level.OK
    assert words in text


def test_time_outs_of_slurm_are_compared_with_those_of_rekindle() -> None:
    good = {"SlurmdTimeout": "120 sec", "KillWait": "90 sec", "MinJobAge": "300 sec"}
    assert {each.level for each in timeouts(good, 60.0)} == {Level.OK}
    bad = timeouts({"SlurmdTimeout": "0 sec", "KillWait": "10 sec", "MinJobAge": "5 sec"}, 60.0)
    assert [each.level for each in bad] == [Level.WARNING] * 3
    assert "10 s to save" in bad[1].detail
    (lost, *_) = timeouts({**good, "SlurmdTimeout": "15 sec"}, 60.0)
    assert (lost.level, "rekindle notices one after 60 s, Slurm after 15 s" in lost.detail) == (Level.WARNING, True)
