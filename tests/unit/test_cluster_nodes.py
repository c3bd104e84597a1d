"""Which nodes of an allocation a coordinator uses: those that prove that they can write where it reads."""

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from e2e.waiting import until
from rekindle.contract.files import write_json
from rekindle.contract.run_dir.coordinator_records import Coordinator
from rekindle.contract.run_dir.paths import LaunchDir
from rekindle.keeper import buffered_journal
from rekindle.keeper.buffered_journal import follow_clock_of, journal_time
from rekindle.keeper.cluster import connections, nodes
from rekindle.keeper.cluster.connections import CoordinatorLostError, HomeProof, NodeLink, read_proof
from rekindle.keeper.cluster.messages import NodeHello, Terminated, Versions
from rekindle.keeper.cluster.nodes import Nodes
from rekindle.keeper.event_loop import EventLoop

VERSIONS = Versions("r", "t", "p")


class Allocation:
    """A coordinator's nodes n1 and n2, and the node side of n1; one thread is both."""

    def __init__(self, directory: Path) -> None:
        self.launch, self.events = LaunchDir(directory), EventLoop()
        self.processes, self.starts = list[subprocess.Popen[bytes]](), Counter[str]()
        self.nodes = Nodes(["n1", "n2"], self._start, "127.0.0.1", "secret", self.events, 60.0, self.launch)
        self.provers = list[int]()
        self.prove()

    def prove(self) -> None:
        """What the keeper of n1 does when it starts."""
        self.proof = HomeProof(self.launch.proof("n1"), self.events.close)
        self.provers.append(self.proof.pid)

    def _start(self, host: str, stderr: IO[bytes]) -> "subprocess.Popen[bytes]":
        words = ["sleep", "1000"] if host == "n1" else ["sh", "-c", "echo ModuleNotFoundError: no torch >&2; exit 1"]
        self.starts[host] += 1
        self.processes.append(subprocess.Popen(words, stderr=stderr))
        return self.processes[-1]

    def connect(self, *, written: int, clock: float | None = None) -> NodeLink:
        coordinator = Coordinator("127.0.0.1", self.nodes.port, "secret", "n1", os.getpid())
        hello = NodeHello("secret", "n1", "k", versions=VERSIONS, written=written, clock=clock or journal_time())
        return NodeLink(coordinator, hello, self.proof, self.events)

    def until(self, condition: Callable[[], object], sentence: str) -> None:
        until(lambda: self.events.wait(0.05) and bool(condition()), sentence)

    def close(self) -> None:
        for pid in self.provers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for process in self.processes:
            process.kill()
            process.wait()
        self.nodes.close(is_over=True)
        self.nodes.check()
        self.events.close()


@pytest.fixture
def allocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Allocation]:
    monkeypatch.setattr(connections, "PROOF_INTERVAL", 0.1)
    monkeypatch.setattr(nodes, "_MIN_DELAY", 0.01)
    made = Allocation(tmp_path)
    yield made
    made.close()


def test_a_node_is_used_once_its_proof_is_read_and_not_before(allocation: Allocation) -> None:
    allocation.nodes.start_missing()
    allocation.launch.proof("n1").unlink()
    allocation.connect(written=1, clock=journal_time() + 30)
    allocation.until(lambda: allocation.nodes.answering(), "n1 is used")
    os.kill(allocation.proof.pid, signal.SIGKILL)  # as at the end of an attempt
    os.waitpid(allocation.proof.pid, 0)
    written = read_proof(allocation.launch.proof("n1"))
    allocation.until(lambda: read_proof(allocation.launch.proof("n1")) > written + 1, "another child writes on")
    allocation.provers = [allocation.proof.pid]
    allocation.until(lambda: allocation.nodes.is_settled(), "n2 is given up")
    report = allocation.nodes.report()
    assert list(report["missing"]) == list(report["excluded"]) == ["n2"]
    assert report["excluded"]["n2"].endswith(": ModuleNotFoundError: no torch")
    assert report["clocks"]["n1"] == pytest.approx(30, abs=5)


def test_a_node_that_cannot_write_any_more_is_lost_with_the_reason_and_used_again_when_it_can(
    allocation: Allocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "RETRY_INTERVAL", 0.5)
    allocation.nodes.start_missing()
    allocation.connect(written=1)
    allocation.until(lambda: allocation.nodes.answering(), "n1 is used")
    (node,) = allocation.nodes.answering()
    proof = allocation.launch.proof("n1")
    proof.unlink()
    proof.mkdir()
    with pytest.raises(CoordinatorLostError):
        allocation.until(lambda: False, "the node is dropped")
    assert node.lost is not None
    assert node.lost.startswith(f"it cannot write {proof.parent}: ")
    assert allocation.nodes.report()["excluded"]["n1"] == node.lost
    proof.rmdir()
    allocation.until(lambda: allocation.starts["n1"] > 1, "another keeper is started there")
    allocation.prove()
    allocation.connect(written=1)
    allocation.until(lambda: allocation.nodes.answering(), "n1 is used")
    assert "n1" not in allocation.nodes.report()["excluded"]


def test_no_node_is_to_blame_for_what_cannot_be_started_when_the_slurm_job_ends(allocation: Allocation) -> None:
    link = allocation.connect(written=1)
    allocation.until(lambda: allocation.nodes.answering(), "n1 is used")
    link.send(Terminated())
    allocation.until(lambda: not allocation.nodes.answering(), "n1 is about to leave")
    allocation.nodes.start_missing()
    allocation.until(lambda: allocation.starts["n2"] >= nodes.MAX_STARTS, "n2 is tried")
    allocation.until(lambda: "no torch" in allocation.nodes.missing()["n2"], "it has failed")
    assert allocation.nodes.report()["excluded"] == {}


def test_what_a_node_writes_and_nobody_sees_is_no_proof(
    allocation: Allocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "UNSEEN_MARGIN", -59.7)
    monkeypatch.setattr(nodes, "read_proof", lambda _: 0)
    allocation.nodes.start_missing()
    allocation.connect(written=1)
    with pytest.raises(CoordinatorLostError):
        allocation.until(lambda: False, "the node is dropped")
    assert "is not seen on other nodes" in allocation.nodes.report()["excluded"]["n1"]


def test_a_first_proof_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"it cannot write .*: No such file or directory"):
        HomeProof(tmp_path / "absent" / "proof.json", lambda: None)


def test_records_follow_the_clock_of_the_file_system_where_that_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffered_journal, "_clock_offset", 0.0)
    path, before = tmp_path / "leader.json", journal_time()
    write_json(path, {})
    follow_clock_of(path)
    assert abs(journal_time() - before) < 60
    os.utime(path, (before - 3600, before - 3600))
    follow_clock_of(path)
    assert journal_time() - before == pytest.approx(-3600, abs=60)
