"""What `rekindle doctor --slurm` makes of the settings of a cluster and the answers of its nodes."""

import os
from pathlib import Path
from typing import Any

import pytest

from rekindle_service.cli.checks import Level
from rekindle_service.cli.checks.slurm_checks import judge, memory, timeouts

HOME = Path("/srv/lab/rekindle")


def an_answer(**differs: Any) -> dict[str, Any]:
    answer = {"uid": os.getuid(), "python": "3.12.1", "torch": "2.9.0", "home": None, "address": "192.168.1.11",
              "port": 4000, "connects": None, "ahead": 0.4, "within": 0.1}  # fmt: skip
    return {**answer, **differs}


def findings(**answers: dict[str, Any]) -> dict[str, tuple[Level, str]]:
    return {each.name: (each.level, f"{each.detail} {each.advice}") for each in judge(answers, HOME)}


def test_a_sound_cluster_passes() -> None:
    assert {level for level, _ in findings(n1=an_answer(), n2=an_answer()).values()} == {Level.OK}


@pytest.mark.parametrize(
    ("differs", "name", "words", "level"),
    [
        ({"home": "cannot be written (Read-only file system)"}, "directory",
         "n2: /srv/lab/rekindle cannot be written (Read-only file system)", Level.PROBLEM),
        ({"ahead": 3600.2}, "clocks", "n2: 1 h 0 min ahead of this machine", Level.WARNING),
        ({"ahead": -2.6}, "clocks", "n2: 3 s behind this machine", Level.WARNING),
        ({"ahead": 2.6, "within": 0.7}, "clocks", "agree", Level.OK),
        ({"uid": 77}, "user", "n2: has the number 77", Level.PROBLEM),
        ({"torch": None}, "torch", "n1: 2.9.0; n2: none", Level.PROBLEM),
        ({"torch": "2.8.0"}, "torch", "differs: n1: 2.9.0; n2: 2.8.0", Level.PROBLEM),
        ({"python": "3.11.2"}, "python", "n2: 3.11.2", Level.PROBLEM),
        ({"address": "127.0.1.1"}, "addresses", "n2: resolves its own name to 127.0.1.1", Level.WARNING),
        ({"address": None, "port": None}, "addresses", "n2: resolves its own name to nothing", Level.WARNING),
        ({"connects": "does not reach n1: No route to host"}, "connections",
         "n2: does not reach n1: No route to host", Level.PROBLEM),
    ],
)  # fmt: skip
def test_what_one_node_lacks_is_named(differs: dict[str, Any], name: str, words: str, level: Level) -> None:
    found, text = findings(n1=an_answer(), n2=an_answer(**differs))[name]
    assert found is level
    assert words in text


def test_a_node_that_gives_no_answer_is_a_problem_where_others_do() -> None:
    found = findings(n1={"failed": "execve(): /opt/python: No such file or directory"}, n2=an_answer())
    assert found["probe"][0] is Level.PROBLEM
    assert "n1: execve(): /opt/python" in found["probe"][1]
    assert found["nodes"] == (Level.OK, "n2 answers ")
    assert findings()["nodes"][0] is Level.PROBLEM


def test_a_finding_about_many_nodes_names_some_of_them_and_how_many_there_are() -> None:
    lacking = {f"n{number}": an_answer(torch=None) for number in range(1, 101)}
    assert findings(**lacking)["torch"][1].startswith("n1, n2, n3, n4, n5, n6, n7, n8 and 92 others: none")


def test_nodes_that_could_not_connect_are_no_proof_of_a_network() -> None:
    answer = an_answer()
    del answer["connects"]
    assert findings(n1=answer)["connections"][0] is Level.WARNING


@pytest.mark.parametrize(
    ("config", "partition", "level", "words"),
    [
        ({"DefMemPerNode": "UNLIMITED"}, {"DefMemPerNode": "UNLIMITED"}, Level.WARNING, "Set DefMemPerCPU=2000 "),
        ({"DefMemPerNode": "UNLIMITED"}, {"DefMemPerCPU": "1000"}, Level.OK, "gets 1000 MB (DefMemPerCPU)"),
        ({"DefMemPerNode": "8000"}, {"DefMemPerNode": "UNLIMITED"}, Level.OK, "gets 8000 MB (DefMemPerNode)"),
        ({"SelectTypeParameters": "CR_CPU"}, {}, Level.OK, "no memory"),
    ],
)
def test_a_cluster_whose_jobs_get_all_memory_of_their_nodes_is_warned_of(
    config: dict[str, str], partition: dict[str, str], level: Level, words: str
) -> None:
    nodes = [{"RealMemory": "8000", "CPUTot": "4"}, {"RealMemory": "64000", "CPUTot": "8"}]
    found = memory({"SelectTypeParameters": "CR_CPU_MEMORY", **config}, partition, nodes)
    assert found.level is level
    assert words in f"{found.detail} {found.advice}"


def test_time_outs_of_slurm_are_compared_with_those_of_rekindle() -> None:
    good = {"SlurmdTimeout": "120 sec", "KillWait": "90 sec", "MinJobAge": "300 sec"}
    assert {each.level for each in timeouts(good, 60.0)} == {Level.OK}
    bad = timeouts({"SlurmdTimeout": "0 sec", "KillWait": "10 sec", "MinJobAge": "5 sec"}, 60.0)
    assert [each.level for each in bad] == [Level.WARNING] * 3
    assert "10 s to save" in bad[1].detail
    (lost, *_) = timeouts({**good, "SlurmdTimeout": "15 sec"}, 60.0)
    assert (lost.level, "rekindle notices one after 60 s, Slurm after 15 s" in lost.detail) == (Level.WARNING, True)
