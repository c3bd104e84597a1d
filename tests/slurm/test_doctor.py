"""`rekindle doctor --slurm` on a real cluster: each node is asked, and what is wrong with one is named."""

import importlib.util
import json
import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

from cli_process import rekindle
from rekindle_service.cli.checks import slurm_checks
from slurm.cluster import Cluster

HOUR_AHEAD = "import time; time.time = (lambda now: lambda: now() / 1e9 + 3600)(time.time_ns)\n"

Found = Mapping[str, tuple[str, str]]


def doctor(cluster: Cluster, home: Path, *options: str) -> tuple[int, Found]:
    """The exit code; of each check its level, and what it says."""
    done = rekindle(home, "doctor", "--slurm", "-o", "json", *options, variables=cluster.environment)
    assert done.stdout, done.stderr
    findings = json.loads(done.stdout)
    return done.returncode, {each["name"]: (each["level"], f"{each['detail']} {each['advice']}") for each in findings}


def levels(found: Found, level: str) -> set[str]:
    return {name for name, (each, _) in found.items() if each == level}


@pytest.mark.parametrize("name", ["home", "my home"])
def test_a_sound_cluster_has_no_problem_and_the_probe_leaves_nothing(
    cluster: Cluster, tmp_path: Path, name: str
) -> None:
    home = tmp_path / name
    home.mkdir()
    code, found = doctor(cluster, home)
    assert (code, levels(found, "problem")) == (0, set()), found
    assert found["nodes"] == ("ok", "n1, n2, n3 answer ")
    for check in ("directory", "clocks", "python", "torch", "user", "connections"):
        assert found[check][0] == "ok", found
    assert list(home.iterdir()) == []
    assert cluster.run("squeue", "--noheader") == ""


def test_each_node_with_a_fault_of_its_own_is_named_with_it(cluster: Cluster, home: Path) -> None:
    cluster.disturbed = True
    read_only, without_torch, ahead = (cluster.host(node) for node in ("n1", "n2", "n3"))
    read_only.run("mount", "--bind", str(home), str(home))
    read_only.run("mount", "-o", "remount,ro,bind", str(home))
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    assert torch.submodule_search_locations is not None
    empty = cluster.root / "empty"
    empty.mkdir()
    without_torch.run("mount", "--bind", str(empty), os.path.realpath(torch.submodule_search_locations[0]))
    start = next(Path(sysconfig.get_path("purelib")).glob("*.pth"))
    shifted = cluster.root / "ahead.pth"
    shifted.write_text(f"{start.read_text()}\n{HOUR_AHEAD}")
    ahead.run("mount", "--bind", str(shifted), os.path.realpath(start))
    code, found = doctor(cluster, home)
    assert (code, levels(found, "problem")) == (1, {"directory", "torch"}), found
    assert f"n1: {home} cannot be written (Read-only file system)" in found["directory"][1]
    assert "n2: none" in found["torch"][1]
    assert found["clocks"][0] == "warning"
    assert "n3: 1 h 0 min ahead of this machine" in found["clocks"][1]
    assert found["nodes"][1] == "n1, n2, n3 answer "


def test_nodes_that_slurm_cannot_use_now_are_named_with_their_state_and_a_missing_home_is_a_problem(
    cluster: Cluster, home: Path
) -> None:
    cluster.disturbed = True
    cluster.host("n1").run("mount", "-t", "tmpfs", "tmpfs", str(home))
    cluster.run("scontrol", "update", "nodename=n2", "state=down", "reason=no power")
    busy = cluster.sbatch("sleep 1000", "--nodelist=n3", "--exclusive")
    cluster.reach(busy, "RUNNING")
    code, found = doctor(cluster, home)
    assert (code, levels(found, "problem")) == (1, {"directory"}), found
    assert f"n1: {home} cannot be read (No such file or directory)" in found["directory"][1]
    level, words = found["not checked"]
    assert level == "warning"
    assert "n2: DOWN (no power)" in words
    assert "n3: ALLOCATED" in words
    assert found["connections"][0] == "warning", "one node alone has nobody to connect to"


def test_an_interpreter_that_a_node_lacks_and_a_partition_that_nobody_has_are_problems(
    cluster: Cluster, home: Path
) -> None:
    code, found = doctor(cluster, home, "--python", f"{home}/no/python", "--partition", "short")
    assert (code, levels(found, "problem")) == (1, {"probe", "nodes"}), found
    assert f"n1, n2, n3: execve(): {home}/no/python: No such file or directory" in found["probe"][1]
    code, found = doctor(cluster, home, "--partition", "gpu")
    assert (code, levels(found, "problem")) == (1, {"partition"})
    assert "Slurm has no partition gpu" in found["partition"][1]
    assert "main, urgent, short" in found["partition"][1]


def test_a_node_that_is_lost_and_one_that_hangs_are_named_and_the_others_are_judged(
    cluster: Cluster, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_checks, "_SECONDS", 20.0)
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    python = home / "python"
    python.write_text(f'#!/bin/sh\n[ "$(hostname)" = n3 ] && exec sleep 1000\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    cluster.kill("n2", "drop")
    found = {each.name: each for each in slurm_checks.slurm(home, str(python), 60.0)}
    assert found["probe"].level == "problem"
    assert "n2: " in found["probe"].detail
    assert "n3: it gave no answer" in found["probe"].detail
    assert found["nodes"].detail == "n1 answers"
    assert [each.name for each in home.iterdir()] == ["python"]


def test_a_cluster_whose_jobs_get_all_memory_is_warned_of_and_a_default_ends_the_warning(
    cluster: Cluster, home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    del cluster  # skips where there can be none
    with Cluster(1, shared=[tmp_path_factory.getbasetemp()], SelectTypeParameters="CR_CPU_Memory") as giving:
        giving.reach(giving.sbatch("sleep 1000", "--ntasks=1", "--mem=100"), "RUNNING")
        code, found = doctor(giving, home)
        assert (code, found["memory"][0]) == (0, "warning"), found
        assert "Set DefMemPerCPU=2000 " in found["memory"][1]
        assert found["nodes"][1] == "n1 answers ", "the probe needs little memory: a node with a job has that"
        giving.configure(DefMemPerCPU="2000")
        assert doctor(giving, home)[1]["memory"][0] == "ok"
