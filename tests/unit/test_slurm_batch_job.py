"""What a job requests of sbatch, and the script that Slurm starts."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import SlurmOptions, TargetKind
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.launch.slurm.batch_job import batch_script, extra_error, sbatch_options

RUN_DIR = RunDir(Path("/home/runs/abcdefghij"))
SPEC = JobSpec(
    "n", TargetKind.SCRIPT, "t.py", "/p", min_ranks=4, max_ranks=8, nodes=2, min_nodes=1, device="cpu",
    slurm=SlurmOptions(partition="long", time="1-00:00:00", extra=["--mem=32G"]),
)  # fmt: skip


def options_of(spec: JobSpec) -> list[str]:
    return sbatch_options(spec, "rekindle-abcdefghij-3", RUN_DIR, RUN_DIR.launch(3))


def test_nodes_are_a_range_and_each_gets_processors_for_its_ranks() -> None:
    options = options_of(SPEC)
    assert {
        "--job-name=rekindle-abcdefghij-3",
        "--nodes=1-2",
        "--cpus-per-task=4",
        "--no-kill",
        "--requeue",
        "--partition=long",
        "--time=1-00:00:00",
        "--output=/home/runs/abcdefghij/launches/3/slurm.log",
        "--chdir=/home/runs/abcdefghij/code",
    } < set(options)
    assert options[-1] == "--mem=32G"
    assert not any(option.startswith("--signal") for option in options), "the coordinator knows the limit"
    assert "--nodes=2" in options_of(replace(SPEC, min_nodes=2))
    assert not any(option.startswith(("--gpus", "--account")) for option in options)


def test_gpus_are_those_of_all_ranks_of_a_node() -> None:
    spec = replace(SPEC, device="cuda", devices_per_rank=2)
    assert "--gpus-per-node=8" in options_of(spec)
    assert spec.slurm is not None
    typed = replace(spec, slurm=replace(spec.slurm, extra=["--gres=gpu:a100:8", "--cpus-per-task=32"]))
    options = options_of(typed)
    assert not any(option.startswith("--gpus-per-node") for option in options)
    assert [option for option in options if option.startswith("--cpus-per-task")] == ["--cpus-per-task=32"]


def test_memory_and_gpus_of_each_node_are_options_of_their_own() -> None:
    spec = replace(SPEC, device="cuda")

    def chosen(**fields: str) -> list[str]:
        options = options_of(replace(spec, slurm=SlurmOptions(**fields)))
        return [option for option in options if option.startswith(("--mem", "--g"))]

    assert chosen() == ["--gpus-per-node=4"]
    assert chosen(mem="32G", gpus_per_node="a100:8") == ["--mem=32G", "--gpus-per-node=a100:8"]
    assert chosen(gres="gpu:a100:4,tmpdisk:100") == ["--gres=gpu:a100:4,tmpdisk:100"]
    assert chosen(gres="tmpdisk:100") == ["--gpus-per-node=4", "--gres=tmpdisk:100"]


@pytest.mark.parametrize("option", ["--mem=32G", "--exclusive", "--gres=gpu:2", "--nodelist=n[1-2]", "--mail-type=END",
                                    "--reservation=r", "--cpus-per-task=8", "--exclude=n3", "--tmp=10G"])  # fmt: skip
def test_what_the_keepers_do_not_rely_on_may_be_requested(option: str) -> None:
    assert extra_error(option) is None


@pytest.mark.parametrize(
    ("option", "rule"),
    [
        ("-p", "must be written"),
        ("mem=3", "must be written"),
        ("--mem 32G", "must be written"),
        ("--nodes=3", "set by rekindle"),
        ("--array=1-3", "set by rekindle"),
        ("--outp=/tmp/x", "set by rekindle"),
        ("--no-requeue", "set by rekindle"),
        ("--job-name=x", "set by rekindle"),
        ("--export=ALL", "set by rekindle"),
        ("--wrap=true", "set by rekindle"),
        ("--partition=x", "field of its own, partition"),
        ("--time=5", "--slurm-time"),
    ],
)
def test_what_the_keepers_rely_on_cannot_be_overridden(option: str, rule: str) -> None:
    assert rule in (extra_error(option) or "")


def test_the_script_says_what_its_node_lacks(tmp_path: Path) -> None:
    run_dir, worker = RunDir(tmp_path / "abcdefghij"), tmp_path / "it's worker"

    def run(python: str) -> "subprocess.CompletedProcess[str]":
        script = tmp_path / "script.sh"
        script.write_text(batch_script(python, worker, run_dir, 3, {"PATH": "/usr/bin:/bin"}))
        return subprocess.run(["/bin/sh", str(script)], capture_output=True, text=True, env={}, check=False)

    assert "it does not see" in run("/bin/echo").stderr
    assert "mount at the same path" in run("/bin/echo").stderr
    run_dir.root.mkdir()
    run_dir.spec.touch()
    assert "the keeper's code" in run("/bin/echo").stderr
    (worker / "rekindle").mkdir(parents=True)
    assert "no Python at /no/python" in run("/no/python").stderr
    started = run("/bin/echo")
    assert started.stdout == f"-P -m rekindle.keeper.cluster {run_dir.root} 3\n"


def test_excluded_nodes_join_those_that_the_job_excludes_itself() -> None:
    run_dir, own = RUN_DIR, replace(SPEC, slurm=SlurmOptions(extra=["--exclude=n[8-9]"]))
    assert sbatch_options(SPEC, "n", run_dir, run_dir.launch(1), {"n2", "n1"})[-1] == "--exclude=n1,n2"
    assert sbatch_options(own, "n", run_dir, run_dir.launch(1), {"n1"})[-1] == "--exclude=n[8-9],n1"
