"""Nothing is on disk yet when a node of a running job is lost: the others have in memory what it had."""

import pytest

from e2e.waiting import until
from slurm.cluster import Cluster
from slurm.cluster_job import ClusterJob
from slurm.conftest import Submit, Undisturbed

_RARELY = {"every_steps": 1000}


@pytest.mark.soak
@pytest.mark.parametrize("first", [False, True], ids=["other", "first"])
def test_a_lost_node_costs_no_step_that_its_neighbour_has_in_memory(
    cluster: Cluster, submit: Submit, undisturbed: Undisturbed, first: bool
) -> None:
    job = submit(snapshot=_RARELY, pace=0.5)
    until(lambda: (kept(job) or 0) > 3, f"job {job.id} has a snapshot in memory\n{job.all_logs()}", 120)
    lost = next(host for host in job.hosts() if (host == job.leader) == first)
    cluster.kill(lost, "power")
    took = job.reach(attempt=2)
    print(f"power of {lost}: {took:.1f} s to the next step, on {job.hosts()}, from step {job.resumed()}")
    assert job.resumed()[-1] > 3, job.all_logs()
    assert job.snapshots() == []
    assert lost not in job.hosts()
    cluster.heal(lost)
    assert job.finish() == "succeeded", job.all_logs()
    assert job.digests() == undisturbed.digests
    assert job.trained() == undisturbed.steps
    for node in cluster.nodes:
        assert "rekindle-" not in cluster.host(node).run("ls", "/dev/shm"), node  # noqa: S108


def kept(job: ClusterJob) -> int | None:
    status = job.status(0)
    return None if status is None else status.memory_step
