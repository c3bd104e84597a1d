"""Deleting runs that resist it: the others go, what stays is named, and nothing waits for it."""

import errno
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from e2e.waiting import until
from fakes.launching import fake_launchers
from job_examples import a_job, cpu_machine, names_in, open_store, queued_job
from rekindle.contract.states import JobState
from rekindle_service.config.home import Home
from rekindle_service.retention.deletions import Deletions
from rekindle_service.retention.remove_tree import Removal, remove_tree
from rekindle_service.scheduler.reconciler import Reconciler


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return home


def cannot_launch(_):
    raise OSError(errno.EAGAIN, "no process can be started")


def mount(point: Path, data: Path) -> None:
    point.mkdir(parents=True)
    data.mkdir(exist_ok=True)
    if subprocess.run(["mount", "--bind", str(data), str(point)], capture_output=True, check=False).returncode:
        pytest.skip("this user cannot mount")


def unmount(below: Path) -> None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if (point := line.split()[4]).startswith(str(below)):
            subprocess.run(["umount", point], check=True)


def test_a_run_that_cannot_be_removed_is_reported_and_retried_and_blocks_no_other(home, tmp_path):
    bad, good = a_job(), a_job()
    for job in (bad, good):
        (home.run_dir(job.id).code / "x").mkdir(parents=True)
    mount(home.run_dir(bad.id).code / "data", tmp_path / "data")
    deletions = Deletions(home)
    try:
        deletions.remove_run(bad.id)
        deletions.remove_run(good.id)
        assert 0 < deletions.run_due() <= 1
        assert names_in(home.runs) == [f".deleted-{bad.id}"]
        (stuck,) = deletions.stuck()
        assert stuck.reason == "data: Device or resource busy"
        assert stuck.path == str(home.deleted_run(bad.id))
        assert stuck.since <= time.time() <= stuck.next_try_at
        deletions.retry()
        assert 1 < deletions.run_due() <= 2
    finally:
        unmount(tmp_path)
    following = Deletions(home)  # that of the next server
    following.adopt()
    assert following.run_due() is None
    assert names_in(home.runs) == []
    assert following.stuck() == []


@pytest.mark.parametrize("kind", ["directory", "fifo", "link"])
def test_a_job_that_replaced_the_lock_of_its_keeper_is_removed(home, kind):
    run_dir = home.run_dir(a_job().id)
    run_dir.root.mkdir()
    match kind:
        case "directory":
            run_dir.keeper_lock.mkdir()
        case "fifo":
            os.mkfifo(run_dir.keeper_lock)
        case "link":
            run_dir.keeper_lock.symlink_to(run_dir.keeper_lock)
    deletions = Deletions(home)
    deletions.remove_run(run_dir.job_id)
    assert deletions.run_due() is None, deletions.stuck()
    assert names_in(home.runs) == []


def test_a_removal_that_takes_for_ever_stalls_neither_the_queue_nor_the_end_of_the_server(home, monkeypatch):
    store = open_store(home.root)
    large = queued_job(store, home)
    store.transition(large.id, JobState.CANCELLED, expected={JobState.QUEUED}, reason="test")
    begun = threading.Event()

    def endless(root, stopped=lambda: False):
        if root != home.deleted_run(large.id):
            return remove_tree(root, stopped)
        begun.set()
        until(stopped, "the server ends")
        return Removal()

    monkeypatch.setattr("rekindle_service.retention.deletions.remove_tree", endless)
    engine = Reconciler(store, home, cpu_machine(1), fake_launchers(store, home, cpu_machine(1), cannot_launch))
    engine.start()
    try:
        store.delete_job(large.id)
        assert begun.wait(60)
        waiting = queued_job(store, home)
        engine.wake()
        until(lambda: store.job(waiting.id).state is not JobState.QUEUED, "another job starts meanwhile")
        assert engine.deletions.pending == 1
    finally:
        engine.close()
    monkeypatch.undo()
    following = Deletions(home)
    following.adopt()
    assert following.run_due() is None
    assert names_in(home.runs) == [waiting.id]
    store.close()
