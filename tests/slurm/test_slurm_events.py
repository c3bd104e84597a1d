"""What Slurm and its people do to a running job: nothing of the training is lost, and the page says what happens."""

import os
import signal
from pathlib import Path

import pytest

from cli_process import rekindle
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from rekindle.contract.run_dir.journal import RecordType
from rekindle_service.client import Client
from slurm.cluster import Cluster
from slurm.conftest import Submit, Undisturbed
from slurm.test_lost_nodes import assert_same_training


def test_a_job_cancelled_in_slurm_is_held_until_it_is_resumed(
    cluster: Cluster, client: Client, submit: Submit, undisturbed: Undisturbed
) -> None:
    job = submit(pace=0.3)
    job.reach_snapshot()
    first = job.slurm_id
    cluster.run("scancel", str(first))
    job.reach_state("queued")
    shown = job.shown()
    assert shown["intent"] == "hold"
    assert f"Slurm job {first} was cancelled in Slurm" in shown["notice"]
    until(lambda: not job.processes(), "the job has left its nodes")
    step = job.snapshots()[-1]
    client.resume(job.id)
    assert job.finish() == "succeeded", job.all_logs()
    assert job.resumed() == [step]
    assert job.classes() == ["preempted", "success"]
    assert_same_training(job, undisturbed)


def test_a_job_is_accepted_while_its_nodes_are_drained_and_starts_when_they_are_back(
    cluster: Cluster, submit: Submit
) -> None:
    cluster.disturbed = True
    cluster.run("scontrol", "update", "nodename=n[1-2]", "state=drain", "reason=a test")
    job = submit()
    until(lambda: "down, drained" in (job.shown()["waiting_for"] or ""), f"job {job.id} waits for nodes")
    cluster.run("scontrol", "update", "nodename=n[1-2]", "state=resume")
    job.reach()


def test_a_job_that_slurm_is_ending_is_shown_so_and_without_a_speed(
    cluster: Cluster, submit: Submit, home: Path
) -> None:
    job = submit(pace=0.3)
    job.reach()
    until(lambda: job.shown()["steps_per_second"], "its speed is shown")
    lines = rekindle(home, "show", job.id, variables={"COLUMNS": "80"}).stdout.splitlines()
    assert [line.split()[-4:] for line in lines if ": rank " in line] == [
        ["n1:", "rank", "0", "running"],
        ["n2:", "rank", "1", "running"],
    ]
    for pid in job.processes():  # so that Slurm waits for them: KillWait
        os.kill(pid, signal.SIGSTOP)
    cluster.run("scancel", str(job.slurm_id))
    until(lambda: job.shown()["slurm"]["state"] == "COMPLETING", "Slurm is ending it")
    shown = until(lambda: (now := job.shown())["steps_per_second"] is None and now, "no speed is shown any more")
    assert (shown["state"], shown["eta_seconds"], shown["slurm"]["state"]) == ("running", None, "COMPLETING")
    sentence = f"Slurm is ending job {job.slurm_id}: it stops what still runs on its nodes"
    assert shown["slurm"]["reason"] == sentence
    assert sentence in rekindle(home, "show", job.id).stdout


@pytest.mark.soak
def test_a_running_job_outlives_the_controller_and_the_server(
    cluster: Cluster, server: ServeProcess, submit: Submit, undisturbed: Undisturbed
) -> None:
    job = submit(pace=1)
    job.reach()
    cluster.stop_controller()
    until(lambda: job.shown()["slurm"]["state"] == "UNKNOWN", "the page says that the state is unknown")
    assert job.state == "running"
    server.kill()
    step = job.step()
    job_step = until(lambda: job.step() > step + 2 and job.step(), "it trains on, unseen")
    server.start()
    cluster.start_controller()
    until(lambda: job.shown()["slurm"]["state"] == "RUNNING", "the page knows it again")
    assert job.shown()["step"] >= job_step
    assert job.finish() == "succeeded", job.all_logs()
    assert job.classes() == ["success"]
    assert len(job.slurm_jobs()) == 1
    assert_same_training(job, undisturbed)


@pytest.mark.soak
@pytest.mark.parametrize("first", [[], [0, 1], [1]])
def test_a_requeued_job_saves_and_continues_once(
    cluster: Cluster, submit: Submit, undisturbed: Undisturbed, first: list[int]
) -> None:
    """Slurm sends SIGTERM to all processes; the ranks ``first`` have got it before the keepers of their nodes."""
    job = submit()
    snapshot = job.reach_snapshot()
    number = job.slurm_id
    for rank in first:
        job.signal_rank(rank, signal.SIGTERM)
    cluster.run("scontrol", "requeue", str(number))
    job.reach_state("recovering", "starting")
    job.reach(attempt=2, beyond=snapshot)
    assert job.finish() == "succeeded", job.all_logs()
    until(lambda: not cluster.run("squeue", "--noheader"), "Slurm has no job of it left")
    assert job.classes()[-1] == "success"
    assert set(job.classes()[:-1]) <= {"preempted", "keeper_lost"}
    assert_same_training(job, undisturbed)


@pytest.mark.soak
def test_a_preempted_job_saves_waits_and_continues(cluster: Cluster, submit: Submit, undisturbed: Undisturbed) -> None:
    job = submit()
    job.reach_snapshot()
    step = job.step()
    urgent = cluster.sbatch("sleep 1000", "--partition=urgent", "--nodes=3", "--exclusive")
    job.reach_state("recovering", "starting", "queued")
    cluster.reach(urgent, "RUNNING")
    waits = until(lambda: job.shown()["waiting_for"], "the page says why it waits")
    print(f"preempted: {waits}")
    assert "Slurm job" in waits
    assert job.records(RecordType.ATTEMPT_ENDED)[0].last_step >= step
    cluster.run("scancel", str(urgent))
    job.reach(attempt=2, beyond=job.snapshots()[-1])
    assert job.finish() == "succeeded", job.all_logs()
    assert job.classes() == ["preempted", "success"]
    assert_same_training(job, undisturbed)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_the_end_of_an_allocation_is_no_end_of_the_job(submit: Submit, undisturbed: Undisturbed) -> None:
    """Slurm sends its signal up to a minute early, and never where that is before the start: no limit of 2 minutes."""
    job = submit(slurm={"partition": "main", "time": "3"}, pace=10)
    job.reach_snapshot()
    until(lambda: len(job.slurm_jobs()) > 1, "it has submitted itself again", 300)
    until(lambda: job.state in ("succeeded", "failed"), "the job has ended", 600)
    assert job.finish() == "succeeded", job.all_logs()
    assert set(job.classes()[:-1]) == {"preempted"}
    assert_same_training(job, undisturbed)


@pytest.mark.soak
def test_a_job_cancelled_while_slurm_queues_it_never_starts(cluster: Cluster, client: Client, submit: Submit) -> None:
    urgent = cluster.sbatch("sleep 1000", "--partition=urgent", "--nodes=3", "--exclusive")
    cluster.reach(urgent, "RUNNING")
    job = submit()
    waits = until(lambda: job.shown()["waiting_for"], "the page says why it waits")
    assert "Slurm job" in waits
    assert job.state == "starting"
    client.cancel(job.id)
    assert job.finish() == "cancelled", job.all_logs()
    assert job.attempt == 0
    assert [each.split()[1] for each in job.slurm_jobs()] == ["CANCELLED"]
