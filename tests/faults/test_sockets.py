"""What a job listens on: nothing beyond this machine, and no store of torch that another user of it can reach."""

import os
import subprocess
import sys
from collections.abc import Callable

import psutil
import pytest

from e2e.waiting import until
from faults.faulty_run import FaultyRun
from faults.intruder import INTRUDER
from rekindle.contract.job_options import LaunchMode
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.states import JobIntent

NOBODY = 65534
_ATTACK = """
import os, sys
from datetime import timedelta
from torch.distributed import TCPStore
os.setgroups([])
os.setresgid(*[int(sys.argv[1])] * 3)
os.setresuid(*[int(sys.argv[1])] * 3)
for address in sys.argv[2:]:
    host, port = address.split()
    try:
        store = TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=1))
        store.set("torch.rendezvous.run.1", "a pickle")
        print("has written into", address, store.list_keys())
    except Exception as error:
        print("has failed at", address, type(error).__name__)
"""


def listeners(run: FaultyRun, which: Callable[[psutil.Process], bool] = lambda _: True) -> set[tuple[str, int]]:
    """Host and port of all that the keeper's tree listens on; of the processes that are ``which``."""
    found = set()
    for process in psutil.Process(run.keeper.pid).children(recursive=True):
        try:
            if which(process):
                connections = process.net_connections("inet")
                found |= {tuple(each.laddr) for each in connections if each.status == psutil.CONN_LISTEN}
        except psutil.NoSuchProcess:
            continue
    return found


def is_no_rank(process: psutil.Process) -> bool:
    return not process.name().startswith("rank")


def attack_from_another_user(run: FaultyRun) -> None:
    stores = listeners(run, is_no_rank)
    attack = [sys.executable, "-c", _ATTACK, str(NOBODY), *(f"{host} {port}" for host, port in stores)]
    ended = subprocess.run(attack, capture_output=True, text=True, timeout=300, check=False)
    assert ended.stdout.count("has failed at") == len(stores), ended
    assert "has written" not in ended.stdout
    logs = run.run_dir.keeper_log.read_text() + run.run_dir.attempt(1).agent_log.read_text()
    assert logs.count(f"refused a connection of user {NOBODY}") == len(stores) / 2, "one line each"


@pytest.mark.parametrize("warm", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_no_process_of_a_job_listens_beyond_loopback_and_no_other_user_writes_into_a_store(begin, warm):
    """With the agent that waits for the next attempt, RPC, and a script that serves the announced store itself."""
    run = begin("group.py", "rpc", "own", warm=warm)
    for rank in (0, 1):
        run.reach_step(2, rank=rank)
    stores = 4 if warm else 2  # a proxy and the store behind it, for this attempt and for the agent that waits
    until(lambda: len(listeners(run, is_no_rank)) == stores, f"{stores} sockets of stores", 60)
    everything = listeners(run)
    assert len(everything) > stores, "the ranks' own are among them"
    assert {host for host, _ in everything} <= {"127.0.0.1", "127.0.0.2"}
    if os.geteuid() == 0 and warm:  # who is not root cannot become another user
        attack_from_another_user(run)
    (run.run_dir.snapshots / "stop").touch()
    assert run.finish() == "succeeded", run.all_logs()
    assert {"rpc answers 2", "own store has x"} <= set(run.log(0).splitlines())
    assert run.classes() == ["success"]


@pytest.mark.parametrize(("how", "warm"), [("spawn", True), ("fork", False)])
def test_a_job_of_one_process_and_what_it_starts_listen_on_loopback_too(begin, how, warm):
    """Whose store torch would serve on all interfaces."""
    run = begin("process_tree.py", how, "wait", launch=LaunchMode.PROCESS, ranks=1, warm=warm)
    until(lambda: run.log(0).count(" of 2 counts 2") == 2, "both children train", 60)
    hosts = {host for host, _ in listeners(run)}
    assert hosts <= {"127.0.0.1", "::1"}
    assert hosts
    run.want(JobIntent.CANCEL)
    assert run.finish() == "cancelled", run.all_logs()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("warm", [True, False])
def test_a_group_that_another_user_has_joined_ends_the_attempt_before_the_script_uses_it(prepare, warm):
    """gloo takes the first who connects for the peer, and a peer may send what is unpickled."""
    run = prepare("group.py", warm=warm)
    run.run_dir.snapshots.mkdir()
    (run.run_dir.snapshots / "late").touch()
    run.start()
    ports = until(
        lambda: [port for _, port in listeners(run, lambda each: each.name() == "rank 0")], "gloo listens", 60
    )
    attack = [sys.executable, "-c", INTRUDER, str(NOBODY), "127.0.0.1", "127.0.0.9", *map(str, ports)]
    with subprocess.Popen(attack, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as intruder:
        assert intruder.stdout.readline() == b"connected\n"
        (run.run_dir.snapshots / "late").unlink()
        run.reach_record(RecordType.ATTEMPT_ENDED)
        intruder.communicate()
    (run.run_dir.snapshots / "stop").touch()
    assert run.finish() == "succeeded", run.all_logs()
    first = run.outcomes()[0]
    assert (first["exception"], first["rank"]) == ("ForeignPeerError", 0), run.all_logs()
    assert f"user {NOBODY} of this machine" in first["message"]
    assert run.log(0, attempt=1) == ""
