"""A node of a running job is lost, in each way there is: it continues from its snapshot, and trains what it would have.

The job is ``scripts/train.py``: its world is two ranks on two of three nodes. Whatever a lost node still does, nothing
of it counts, nor is there anything left of it when the node has come back.
"""

import hashlib
import time
from collections import Counter
from pathlib import Path

import pytest

from e2e.waiting import until
from rekindle.contract.files import read_json
from rekindle.contract.run_dir.journal import RecordType
from slurm.cluster import Cluster
from slurm.cluster_job import ClusterJob
from slurm.conftest import EPOCHS, Submit, Undisturbed

MODES = ["power", "crash", "link", "drop", "slurmd", "hang"]


def test_a_job_on_two_nodes_trains_what_two_ranks_of_one_machine_do(submit: Submit, undisturbed: Undisturbed) -> None:
    job = submit(pace=0.2)
    job.reach()
    assert [job.status(rank).host for rank in (0, 1)] == job.hosts() == ["n1", "n2"]
    shown = job.shown()
    assert (shown["state"], shown["slurm"]["hosts"]) == ("running", ["n1", "n2"])
    assert job.finish() == "succeeded", job.all_logs()
    assert_same_training(job, undisturbed)
    assert job.classes() == ["success"]


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_a_lost_node_is_replaced_and_the_training_ends_bit_identical(
    cluster: Cluster, submit: Submit, undisturbed: Undisturbed, mode: str
) -> None:
    job = submit()
    snapshot = job.reach_snapshot()
    lost = next(host for host in job.hosts() if host != job.leader)
    assert_loss_costs_no_bit(cluster, job, undisturbed, snapshot, lost, mode)


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=[] if mode == "power" else pytest.mark.soak) for mode in MODES]
)
def test_the_first_node_is_lost_and_the_server_starts_the_job_on_others(
    cluster: Cluster, submit: Submit, undisturbed: Undisturbed, mode: str
) -> None:
    job = submit()
    snapshot = job.reach_snapshot()
    print("the first node:")
    assert_loss_costs_no_bit(cluster, job, undisturbed, snapshot, job.leader, mode)


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=[] if mode == "crash" else pytest.mark.soak) for mode in MODES[:4]]
)
def test_with_fewer_nodes_allowed_the_rest_continues_at_once_and_trains_each_sample_once(
    cluster: Cluster, submit: Submit, mode: str
) -> None:
    job = submit(nodes={"min": 1, "max": 2})
    snapshot = job.reach_snapshot()
    leader = job.leader
    lost = next(host for host in job.hosts() if host != leader)
    cluster.kill(lost, mode)
    took = job.reach(attempt=2, beyond=snapshot)
    print(f"{mode} of {lost}: {took:.1f} s to the next step, on {job.hosts()}")
    assert job.hosts() == [leader]
    assert len(job.slurm_jobs()) == 1
    assert job.finish() == "succeeded", job.all_logs()
    assert_each_sample_once_an_epoch(job)
    assert job.classes() == ["host_lost", "success"]


def test_a_killed_rank_on_the_other_node_restarts_in_the_same_allocation(
    submit: Submit, undisturbed: Undisturbed
) -> None:
    job = submit(pace=0.3)
    snapshot = job.reach_snapshot()
    job.signal_rank(1)
    print(f"kill of a rank: {job.reach(attempt=2, beyond=snapshot):.1f} s to the next step")
    assert job.finish() == "succeeded", job.all_logs()
    assert len(job.slurm_jobs()) == 1
    assert job.classes() == ["signal", "success"]
    assert_same_training(job, undisturbed)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("host_timeout", [60.0])
def test_a_cut_of_45_seconds_costs_no_restart(
    cluster: Cluster, submit: Submit, undisturbed: Undisturbed, host_timeout: float
) -> None:
    """Slurm, too, waits for as long here; else it ends what runs on a node when that comes back."""
    cluster.configure(SlurmdTimeout="300")
    job = submit(pace=1)
    job.reach_snapshot()
    lost = next(host for host in job.hosts() if host != job.leader)
    cluster.kill(lost, "drop")
    healed_at = time.monotonic() + 45
    until(lambda: time.monotonic() > healed_at, "the cut has lasted 45 seconds", 46)
    step = job.step()
    cluster.heal(lost)
    job.reach(beyond=step + 2)
    assert job.finish() == "succeeded", job.all_logs()
    assert job.classes() == ["success"]
    assert_same_training(job, undisturbed)


def assert_loss_costs_no_bit(
    cluster: Cluster, job: ClusterJob, undisturbed: Undisturbed, snapshot: int, lost: str, mode: str
) -> None:
    """The node ``lost`` is lost now; the job trains on others from ``snapshot``, and nothing of it lives there."""
    cluster.kill(lost, mode)
    if mode != "slurmd":
        took = job.reach(attempt=2, beyond=snapshot)
        print(f"{mode} of {lost}: {took:.1f} s to the next step, on {job.hosts()}")
        assert lost not in job.hosts()
        assert_nothing_trains_on(cluster, job, lost)
    assert_healing_changes_nothing(cluster, job, lost, mode)
    assert job.finish() == "succeeded", job.all_logs()
    assert_same_training(job, undisturbed)


def assert_same_training(job: ClusterJob, expected: Undisturbed) -> None:
    """Weights, momentum, random numbers, losses and samples to the last bit."""
    assert job.digests() == expected.digests
    assert job.trained() == expected.steps


def assert_each_sample_once_an_epoch(job: ClusterJob) -> None:
    counted: dict[int, Counter[int]] = {epoch: Counter() for epoch in range(EPOCHS)}
    for epoch, ids, _ in job.trained().values():
        counted[epoch].update(ids)
    assert counted == {epoch: Counter(range(101)) for epoch in range(EPOCHS)}


def assert_nothing_trains_on(cluster: Cluster, job: ClusterJob, node: str) -> None:
    """No rank of an earlier attempt lives there, but those that are stopped: the next one has not waited in vain."""
    states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in job.processes(node)]
    assert set(states) <= {"T", "Z"}, f"{node}: {states}"


def assert_healing_changes_nothing(cluster: Cluster, job: ClusterJob, node: str, mode: str) -> None:
    """The node comes back while the job trains elsewhere: what was there ends, and has written nothing that counts.

    Ranks that were stopped run for the moment that their keeper needs to end them, and may log that.
    """
    attempt, generations = job.attempt, saved_by(job)
    earlier = files_of_attempts(job, attempt - 1)
    cluster.heal(node)
    if node not in job.hosts(attempt):
        until(lambda: not job.processes(node), f"what was left on {node} has ended\n{job.all_logs()}", 60)
    assert mode == "hang" or files_of_attempts(job, attempt - 1) == earlier
    numbers = [record.attempt for record in job.records(RecordType.ATTEMPT_STARTED)]
    assert numbers == sorted(set(numbers))
    late = saved_by(job).items() - generations.items()
    assert {by.partition("-")[0] for _, by in late} <= {str(number) for number in range(attempt, job.attempt + 1)}


def files_of_attempts(job: ClusterJob, latest: int) -> dict[str, str]:
    """Digests of the logs and losses of all attempts up to ``latest``."""
    files = [path for number in range(1, latest + 1) for path in job.run_dir.attempt(number).ranks.rglob("*.log")]
    files += [path for number in range(1, latest + 1) for path in job.out.glob(f"steps-{number}-*.jsonl")]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def saved_by(job: ClusterJob) -> dict[str, str]:
    """The generation that has committed each snapshot that is there."""
    manifests = {path: read_json(path) for path in job.run_dir.snapshots.glob("*/manifest.json")}
    return {path.parent.name: str(value["generation"]) for path, value in manifests.items() if value is not None}
