"""A node of a job is unwell, though it runs: that is shown, the node is excluded where it must be, and no bit is lost.

``pytest tests/slurm/test_unwell_nodes.py --soak 1 -s | grep '^|'`` makes the table of docs/evidence.md.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from e2e.waiting import load_factor
from rekindle_service.client import Client
from slurm.cluster import Cluster
from slurm.cluster_job import ClusterJob, trained_steps
from slurm.conftest import HOST_TIMEOUT, Submit, Undisturbed
from slurm.hosts import Host
from slurm.test_lost_nodes import assert_same_training

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

BAD_HOMES: Mapping[str, Callable[[Host, Path], None]] = {
    "home read-only": lambda host, home: host.make_read_only(home),
    "home missing": lambda host, home: host.hide(home),
    "home stale": lambda host, home: host.make_stale(home),
    "no torch": lambda host, _: host.lack("torch"),
}
_POLL = 0.3  # seconds
_FOUND_WITHIN = 15.0  # seconds, on an idle machine
_CLOCK = 3.0  # seconds
_SHOWN = ("state", "waiting_for", "notice")


@dataclass
class Seen:
    """What a person saw of a job since ``begun``, the moment of the fault; seconds of this machine's time of day."""

    begun: float = field(default_factory=time.time)
    said: list[str] = field(default_factory=list)
    latest: dict[str, Any] = field(default_factory=dict)
    first_seen: dict[int, float] = field(default_factory=dict)
    ended_seen: dict[int, float] = field(default_factory=dict)
    pause: float = 0.0  # the longest time without a step of rank 0
    attempts: list[Any] = field(default_factory=list)
    time: Mapping[str, Any] = field(default_factory=dict)
    excluded: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "\n".join(self.said)

    def message(self, attempt: int) -> str:
        return str(self.attempts[attempt - 1]["outcome"]["message"])


def watch(
    client: Client,
    job: ClusterJob,
    fault: str,
    limit: float = 180,
    later: tuple[float, Callable[[], Any]] | None = None,
) -> Seen:
    """What is seen until ``job`` has ended, or ``limit`` seconds; ``later``: seconds, and what to do after them."""
    seen, lines, moved_at = Seen(), -1, time.monotonic()
    started, shown = moved_at, job.shown()
    while (
        shown["state"] not in ("succeeded", "failed", "cancelled")
        and time.monotonic() < started + limit * load_factor()
    ):
        if later is not None and time.monotonic() > started + later[0]:
            later[1]()
            later = None
        shown, attempts = job.shown(), client.attempts(job.id)
        note(seen, shown, attempts)
        now = sum(len(path.read_bytes().splitlines()) for path in job.out.glob("steps-*-0.jsonl"))
        if now != lines:
            seen.pause = max(seen.pause, time.monotonic() - moved_at)
            lines, moved_at = now, time.monotonic()
        time.sleep(_POLL)
    if shown["state"] != "succeeded":
        seen.pause = float("inf")
    seen.attempts = client.attempts(job.id)  # type: ignore[assignment]
    note(seen, job.shown(), seen.attempts)
    seen.time = client.time_breakdown(job.id)  # type: ignore[assignment]
    report(job, fault, seen)
    return seen


def note(seen: Seen, shown: Mapping[str, Any], attempts: Any) -> None:
    at, slurm = time.time(), shown["slurm"] or {}
    seen.excluded |= slurm.get("excluded") or {}
    said = {name: shown[name] for name in _SHOWN}
    said |= {f"slurm.{name}": slurm.get(name) for name in ("job_id", "state", "reason", "hosts", "excluded")}
    said["outcome"] = (shown["outcome"] or {}).get("message")
    for attempt in attempts:
        seen.first_seen.setdefault(attempt["number"], at)
        if attempt["outcome"] is not None:
            seen.ended_seen.setdefault(attempt["number"], at)
            outcome = attempt["outcome"]
            said[f"attempt {attempt['number']}"] = f"{outcome['class']}: {outcome['message']}"
    seen.said += [
        f"[{at - seen.begun:5.1f}] {name}: {said[name]}" for name in said if said[name] != seen.latest.get(name)
    ]
    seen.latest = said


def report(job: ClusterJob, fault: str, seen: Seen) -> None:
    """A row of the table, and all that it comes from."""
    counted = [(len(list(same)), klass) for klass, same in groupby(job.classes())]
    ends = ", ".join(klass if number == 1 else f"{number} {klass}" for number, klass in counted) or "no attempt ended"
    steps = "-" if seen.pause == float("inf") else f"{seen.pause:.1f}"
    print(f"\n| {fault} | {job.state}: {ends} | {len(seen.attempts)} / {len(job.slurm_jobs())} | {steps} |")
    print("  " + "\n  ".join(seen.said))
    for attempt in seen.attempts:
        number, times = attempt["number"], [attempt[name] for name in ("started_at", "ranks_running_at", "ended_at")]
        steps = f"recorded to step {attempt['last_step']}, trained to {max(trained_steps(job.out, number), default=0)}"
        print(f"  attempt {number} on {job.hosts(number)}: {steps}; times {times}")
    print(f"  goodput {seen.time['goodput']}, {json.dumps(seen.time['seconds'])}, slurm jobs {job.slurm_jobs()}")


def other(job: ClusterJob) -> str:
    """A node of the running job that does not lead it."""
    leader = job.leader
    return next(host for host in job.hosts() if host != leader)


def begin(submit: Submit, *, first: bool, pace: float = 1) -> tuple[ClusterJob, str]:
    """A job that has a snapshot, and its first node or another of it."""
    job = submit(pace=pace)
    job.reach_snapshot()
    return job, job.leader if first else other(job)


def assert_succeeded(job: ClusterJob, undisturbed: Undisturbed) -> None:
    assert job.finish() == "succeeded", job.all_logs()
    assert_same_training(job, undisturbed)


def assert_excluded(cluster: Cluster, job: ClusterJob, seen: Seen, node: str) -> None:
    """The latest Slurm job was submitted without ``node``, and the job shows why."""
    assert node not in job.hosts(), seen.text
    asked = cluster.run("scontrol", "show", "job", job.slurm_jobs()[-1].split()[0])
    assert f"ExcNodeList={node}\n" in asked
    assert list(seen.excluded) == [node], seen.text
    assert seen.excluded[node]


which = pytest.mark.parametrize("first", [True, False], ids=["first", "other"])


@which
@pytest.mark.parametrize("fault", list(BAD_HOMES)[:3])
def test_a_node_that_loses_the_home_is_found_and_excluded(
    cluster: Cluster, client: Client, submit: Submit, home: Path, undisturbed: Undisturbed, fault: str, first: bool
) -> None:
    job, node = begin(submit, first=first)
    BAD_HOMES[fault](cluster.unwell(node), home)
    seen = watch(client, job, f"{fault} on {place(first)} while it runs")
    assert job.classes() == ["host_lost", "success"], seen.text
    assert node in seen.message(1)
    assert "home" in seen.message(1)
    found_within = 2 * HOST_TIMEOUT + 30 if fault == "home stale" else _FOUND_WITHIN
    assert seen.ended_seen[1] - seen.begun < found_within * load_factor()
    assert_excluded(cluster, job, seen, node)
    assert_succeeded(job, undisturbed)


@which
@pytest.mark.parametrize("fault", BAD_HOMES)
def test_a_node_that_cannot_run_the_job_is_found_before_an_attempt_and_excluded(
    cluster: Cluster, client: Client, submit: Submit, home: Path, undisturbed: Undisturbed, fault: str, first: bool
) -> None:
    node = "n1" if first else "n2"
    BAD_HOMES[fault](cluster.unwell(node), home)
    job = submit(pace=0.2)
    seen = watch(client, job, f"{fault} on {place(first)} before it starts")
    assert job.classes() in (["success"], ["host_lost", "success"]), seen.text
    assert_excluded(cluster, job, seen, node)
    assert_succeeded(job, undisturbed)


@pytest.mark.parametrize("fault", BAD_HOMES)
def test_where_no_node_can_run_the_job_it_fails_and_names_each_with_its_reason(
    cluster: Cluster, client: Client, submit: Submit, home: Path, fault: str
) -> None:
    for node in cluster.nodes:
        BAD_HOMES[fault](cluster.unwell(node), home)
    job = submit(pace=0.2)
    seen = watch(client, job, f"{fault} on all nodes")
    assert job.state == "failed", seen.text
    message = job.shown()["outcome"]["message"]
    assert sum(f"{node}: " in message for node in cluster.nodes) >= 2, message  # then one is left, and two are needed
    assert ("torch" if fault == "no torch" else "home") in message


@which
@pytest.mark.parametrize("slurmd_timeout", ["15", "300"])
@pytest.mark.parametrize("seconds", [20, 120])
def test_a_node_that_is_cut_off_for_a_while_is_replaced(
    cluster: Cluster, client: Client, submit: Submit, undisturbed: Undisturbed, seconds: int, slurmd_timeout: str,
    first: bool,
) -> None:  # fmt: skip
    cluster.configure(SlurmdTimeout=slurmd_timeout)
    job, node = begin(submit, first=first)
    cluster.kill(node, "drop")
    fault = f"{seconds} s without a packet, {place(first)}, SlurmdTimeout {slurmd_timeout}"
    seen = watch(client, job, fault, later=(seconds, cluster.host(node).heal))
    assert job.classes() in (["host_lost", "success"], ["keeper_lost", "success"]), seen.text
    assert_succeeded(job, undisturbed)


@which
@pytest.mark.parametrize("share", [0.6, 0.9])
def test_a_cut_below_the_time_out_costs_one_restart_at_most(
    cluster: Cluster, client: Client, submit: Submit, undisturbed: Undisturbed, share: float, first: bool
) -> None:
    """A node ends its ranks when its lease has ended, before the leader gives it up: that is where 0.9 is."""
    cluster.configure(SlurmdTimeout="300")
    job, node = begin(submit, first=first)
    cluster.kill(node, "drop")
    fault = f"a cut of {share} of `host_timeout`, {place(first)}"
    seen = watch(client, job, fault, later=(share * HOST_TIMEOUT, cluster.host(node).heal))
    assert len(seen.attempts) <= (1 if share < 0.75 else 2), seen.text
    assert_succeeded(job, undisturbed)


@which
@pytest.mark.parametrize("lasting", [False, True], ids=["20s", "lasting"])
def test_a_node_that_is_not_heard_is_replaced(
    cluster: Cluster, client: Client, submit: Submit, undisturbed: Undisturbed, lasting: bool, first: bool
) -> None:
    """What is sent to it arrives; nothing that it sends does."""
    job, node = begin(submit, first=first)
    cluster.unwell(node).relay(lost_from=1.0)
    fault = f"one-way loss {'for good' if lasting else 'for 20 s'}, {place(first)}"
    seen = watch(client, job, fault, later=None if lasting else (20, cluster.host(node).heal))
    assert job.classes() in (["host_lost", "success"], ["keeper_lost", "success"]), seen.text
    assert_succeeded(job, undisturbed)


@which
def test_a_lossy_and_slow_link_costs_time_and_no_bit(
    cluster: Cluster, client: Client, submit: Submit, undisturbed: Undisturbed, first: bool
) -> None:
    cluster.unwell("n1" if first else "n2").relay(lost_from=0.3, lost_to=0.3, delay=0.3)
    job = submit(pace=0)
    watch(client, job, f"30 % loss and 300 ms delay, {place(first)}", limit=280)
    assert_succeeded(job, undisturbed)


@which
@pytest.mark.parametrize("hours", [1, -1])
def test_a_wrong_clock_is_reported_and_moves_no_time_of_the_job(
    cluster: Cluster, client: Client, submit: Submit, undisturbed: Undisturbed, hours: int, first: bool
) -> None:
    node = "n1" if first else "n2"
    cluster.unwell(node).shift_clock(3600 * hours)
    job = submit(pace=0.4)
    snapshot = job.reach_snapshot()
    job.signal_rank(0)
    seen = watch(client, job, f"clock {hours:+} h, {place(first)}; a rank is killed")
    assert job.hosts(1) == ["n1", "n2"]
    assert job.resumed()[0] >= snapshot, seen.text
    submitted = seen.begun - 60 * load_factor()
    for attempt in seen.attempts:
        started, ended = (datetime.fromisoformat(attempt[name]).timestamp() for name in ("started_at", "ended_at"))
        assert submitted < started < seen.first_seen[attempt["number"]] + _CLOCK, seen.text
        assert abs(ended - seen.ended_seen[attempt["number"]]) < _CLOCK * load_factor(), seen.text
    assert 0 < (seen.time["goodput"] or 0) <= 1
    assert all(0 <= seconds < 600 for seconds in seen.time["seconds"].values())
    assert any("clock" in line and node in line for line in seen.said), seen.text
    assert_succeeded(job, undisturbed)


def test_slurm_gives_up_the_first_node_whose_daemon_is_dead(
    cluster: Cluster, client: Client, submit: Submit, undisturbed: Undisturbed
) -> None:
    job, node = begin(submit, first=True, pace=2)
    cluster.kill(node, "slurmd")
    seen = watch(client, job, "`slurmd` killed on the first node")
    assert len(seen.attempts) <= 2, seen.text
    assert_succeeded(job, undisturbed)


@which
@pytest.mark.parametrize("path", ["/tmp", "/dev/shm"])  # noqa: S108
def test_a_full_disk_of_a_node_costs_no_bit(
    cluster: Cluster, client: Client, submit: Submit, undisturbed: Undisturbed, path: str, first: bool
) -> None:
    cluster.unwell("n1" if first else "n2").fill(path)
    job = submit(pace=0.4)
    watch(client, job, f"{path} full, {place(first)}")
    assert_succeeded(job, undisturbed)


@which
@pytest.mark.parametrize("seconds", [3, 20])
def test_renames_that_are_seen_late_cost_no_bit(
    cluster: Cluster, client: Client, submit: Submit, home: Path, undisturbed: Undisturbed, seconds: int, first: bool
) -> None:
    cluster.unwell("n1" if first else "n2").delay_renames(home, seconds)
    job = submit(pace=1)
    seen = watch(client, job, f"renames seen {seconds} s late, {place(first)}")
    assert job.classes() == ["success"], seen.text
    assert_succeeded(job, undisturbed)


def place(first: bool) -> str:
    return "the first node" if first else "another node"
