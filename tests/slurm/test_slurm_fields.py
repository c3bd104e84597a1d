"""What a job requests of Slurm by fields of its own: memory, and lines that each node runs first."""

from pathlib import Path

import pytest

from e2e.waiting import until
from rekindle_service.client import Client, ProblemError
from slurm.cluster import Cluster
from slurm.cluster_job import ClusterJob
from slurm.conftest import Submit

_SHOW = """
import os, pathlib
names = ("FROM_LINE", "FROM_FILE", "PYTHONPATH", "SLURMD_NODENAME")
pathlib.Path(os.environ["OUT"], os.environ["RANK"]).write_text("\\n".join(os.environ.get(name, "") for name in names))
"""


def showing(submit: Submit, tmp_path: Path, *prologue: str) -> ClusterJob:
    """A job whose ranks write down some of their variables."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "show.py").write_text(_SHOW)
    (code / "env.sh").write_text('export FROM_FILE="of $REKINDLE_HOST, $TOLD"\nexport PYTHONPATH=/mod:$PYTHONPATH\n')
    return submit(
        name="show", script="show.py", code={"path": str(code)}, env={"TOLD": "by the job", "OUT": str(tmp_path)},
        slurm={"prologue": list(prologue), "extra": ["--nodelist=n[1-2]"]},
    )  # fmt: skip


def test_what_the_prologue_sets_on_each_node_reaches_its_ranks(submit: Submit, tmp_path: Path) -> None:
    lines = ["FROM_LINE='one two'; export FROM_LINE", "source ./env.sh", "unset REKINDLE_RUN_DIR REKINDLE_HOST"]
    job = showing(submit, tmp_path, *lines)
    assert job.finish() == "succeeded", job.all_logs()
    for rank, host in enumerate(job.hosts()):
        line, file, path, node = (tmp_path / str(rank)).read_text().splitlines()
        assert (line, file, node) == ("one two", f"of {host}, by the job", host)
        assert "/mod" in path.split(":")[1:], "the keeper's own comes first"


def test_a_prologue_that_fails_is_the_reason_and_no_rank_starts(submit: Submit, tmp_path: Path) -> None:
    job = showing(submit, tmp_path, "export FROM_LINE=1", "no-such-module load cuda")
    assert job.finish() == "failed", job.all_logs()
    message = job.shown()["outcome"]["message"]
    for host in ("n1", "n2"):
        assert f'the prologue failed on {host}: "no-such-module load cuda" ended with exit code 127: ' in message
    assert message.count("no-such-module: command not found") == 2
    assert not (tmp_path / "0").exists()


@pytest.mark.parametrize("mem", ["3G", None])
def test_jobs_that_say_how_much_memory_they_need_run_side_by_side_on_a_node(
    cluster: Cluster, submit: Submit, mem: str | None
) -> None:
    """A cluster without DefMemPerCPU gives a job that does not say it all memory of its nodes."""
    cluster.configure(restart=True, SelectTypeParameters="CR_Core_Memory")
    alike = {"nodes": 1, "ranks": 1, "pace": 1.0, "slurm": {"mem": mem, "extra": ["--nodelist=n1"]}}
    first = submit(**alike)
    first.reach()
    second = submit(**alike)
    if mem is None:
        until(lambda: "for nodes that are in use now" in (second.shown()["waiting_for"] or ""), "the second one waits")
        return
    second.reach()
    assert (first.state, second.state) == ("running", "running")


def test_more_memory_than_any_node_has_is_refused_at_its_field(client: Client, submit: Submit) -> None:
    with pytest.raises(ProblemError) as caught:
        submit(slurm={"mem": "9T"})
    (error,) = caught.value.problem["errors"]
    assert (error["field"], error["value"]) == ("slurm.mem", "9T")
