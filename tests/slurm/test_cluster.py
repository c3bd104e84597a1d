"""The cluster that the tests run on: it is one, it comes and goes, and its nodes can be hurt."""

import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.waiting import until
from slurm.cluster import Cluster
from slurm.hosts import Host

TESTS = Path(__file__).parent.parent
PYTHON = f"{sys.executable} -c"
CONNECTS = f"{PYTHON} 'import socket; socket.create_connection((\"n1\", 6818), 0.5)'"


def test_a_job_runs_on_two_hosts_that_share_files_but_nothing_else(cluster: Cluster, tmp_path: Path) -> None:
    report = "echo $(hostname) $(cat /proc/sys/kernel/random/boot_id) $(ls /dev/shm | wc -l) $(ls -d /tmp/mine*)"
    own = f"touch /dev/shm/mine /tmp/mine-$(hostname); {report}"
    job = cluster.sbatch(f"srun --ntasks-per-node=1 sh -c '{own}'", "--nodes=2", output=tmp_path / "log")
    cluster.reach(job, "COMPLETED")
    lines = sorted(line.split() for line in (tmp_path / "log").read_text().splitlines())
    names, boot_ids, files, own_files = zip(*lines, strict=True)
    assert names == ("n1", "n2")
    assert len({*boot_ids}) == 2
    assert files == ("1", "1")
    assert [Path(file).name for file in own_files] == ["mine-n1", "mine-n2"]


def test_clocks_since_boot_differ_and_the_time_of_day_does_not(cluster: Cluster) -> None:
    read = "import time; print(time.monotonic(), time.time())"
    (one, day), (two, later) = (
        map(float, cluster.in_node(node, sys.executable, "-c", read).split()) for node in ("n1", "n2")
    )
    assert two - one > 80_000
    assert later - day < 3600


@pytest.mark.parametrize("mode", ["power", "crash", "link", "drop", "hang", "slurmd"])
def test_a_node_is_lost_and_comes_back(cluster: Cluster, mode: str) -> None:
    assert reached(cluster, "n2")
    cluster.kill("n2", mode)
    if mode not in ("hang", "slurmd"):
        assert not reached(cluster, "n2")
    cluster.heal("n2")
    assert cluster.run("srun", "--nodelist=n2", "hostname") == "n2\n"


def reached(cluster: Cluster, node: str) -> bool:
    """Whether n1 gets a connection to the daemon of ``node``."""
    connect = f"import socket; socket.create_connection(('{cluster.host(node).address}', 6818), 0.5)"
    command = cluster.host("n1").command(sys.executable, "-S", "-c", connect)
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("make_unwell", "well"),
    [
        (lambda host, home: host.make_read_only(home), "touch mine"),
        (lambda host, home: host.hide(home), "test -e later"),
        (lambda host, home: host.make_stale(home), "test -e later"),
        (lambda host, _: host.lack("torch"), f"test -e {sysconfig.get_path('purelib')}/torch/__init__.py"),
        (lambda host, _: host.fill("/tmp"), "head -c 100000 /dev/zero >/tmp/mine"),  # noqa: S108
        (lambda host, _: host.fill("/dev/shm"), "head -c 100000 /dev/zero >/dev/shm/mine"),  # noqa: S108
        (
            lambda host, _: host.shift_clock(3600),
            f"test $({PYTHON} 'import time; print(int(time.time()))') -le $(date +%s)",
        ),
        (
            lambda host, home: host.delay_renames(home, 60),
            f'rm -f b; touch a; {PYTHON} \'import os; os.replace("a", "b")\'; test -e b',
        ),
        (lambda host, _: host.relay(lost_from=1), CONNECTS),
        (lambda host, _: host.relay(lost_to=1), CONNECTS),
        (lambda host, _: host.relay(delay=1), CONNECTS),
    ],
)
def test_a_node_is_unwell_alone_and_until_it_is_healed(
    cluster: Cluster, home: Path, make_unwell: Callable[[Host, Path], None], well: str
) -> None:
    make_unwell(cluster.unwell("n2"), home)
    (home / "later").touch()
    assert is_so("n1", well, cluster, home)
    assert not is_so("n2", well, cluster, home)
    cluster.heal("n2")
    assert is_so("n2", well, cluster, home)


def is_so(node: str, condition: str, cluster: Cluster, directory: Path) -> bool:
    command = cluster.host(node).command("sh", "-c", f"cd {directory}; {condition}")
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_the_controller_comes_back_with_its_jobs(cluster: Cluster) -> None:
    job = cluster.sbatch("sleep 1000")
    cluster.reach(job, "RUNNING")
    cluster.stop_controller()
    assert cluster.run("squeue", check=False) == ""
    cluster.start_controller()
    assert cluster.state(job).startswith("RUNNING")


def test_the_urgent_partition_takes_nodes_after_a_signal(cluster: Cluster, tmp_path: Path) -> None:
    said = tmp_path / "said"
    script = f"trap 'echo stopped >>{said}; exit' TERM; echo runs >>{said}; sleep 1000 & wait"
    job = cluster.sbatch(script, "--nodes=3", "--exclusive", "--requeue", "--signal=B:TERM@90")
    until(said.exists, "the job runs")
    cluster.sbatch("true", "--partition=urgent", "--nodes=1", "--exclusive")
    until(lambda: "stopped" in said.read_text(), f"job {job} has got SIGTERM")


def test_a_cluster_leaves_nothing_behind_when_its_process_is_killed(cluster: Cluster) -> None:
    del cluster  # skips where there can be none
    hold = "from slurm.cluster import Cluster; c = Cluster(1); c.start(); print(c.root, flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", hold], env={**os.environ, "PYTHONPATH": str(TESTS)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    root = process.stdout.readline().strip()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    process.stdin.close()
    until(lambda: not mentioning(root), f"no process of {root} is left")
    with Cluster(1) as again:
        assert str(again.root) == root
        assert again.run("srun", "hostname") == "n1\n"


def mentioning(text: str) -> list[str]:
    """Command lines of this machine with ``text`` in them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [line for line in [entry.read_bytes().decode(errors="replace")] if text in line]
        except OSError:
            continue
    return found
