"""A real Slurm cluster on one machine: munged, slurmctld and a slurmd per node, each node a host of its own.

It comes up in a second or two, and several of them run side by side. Its daemons die with the process of the tests;
names of network devices that a killed one left behind are swept when the next cluster takes the same place. Nothing
outside its directory is written: clients find it by ``SLURM_CONF``.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self

from e2e.waiting import until
from slurm.hosts import Bridge, Host, run, start_tied, why_no_hosts

PACKAGES = "slurm-wlm slurm-wlm-basic-plugins munge iproute2"
_COMMANDS = ("unshare", "nsenter", "setpriv", "ip", "munged", "slurmctld", "slurmd", "sbatch", "squeue")
_PLACES = 40
_FOLDER = Path("/tmp")  # noqa: S108  # directories in it are root's own; a socket's path must be short
_PROJECT = Path(__file__).parent.parent.parent
SLURMD = "slurmd"
_CONTROLLER = 253
_UNDER_WAY = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED")

_CONF = {
    "SlurmUser": "root",
    "SlurmdUser": "root",
    "AuthType": "auth/munge",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "MpiDefault": "none",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_CPU",
    "SlurmdParameters": "config_overrides",
    "ReturnToService": "2",
    "SlurmdTimeout": "15",
    "SlurmctldTimeout": "15",
    "MessageTimeout": "5",
    "TCPTimeout": "2",
    "KillWait": "10",
    "UnkillableStepTimeout": "20",
    "BatchStartTimeout": "10",
    "InactiveLimit": "0",
    # slurmctld listens on the address of its host alone.
    "CommunicationParameters": "NoCtldInAddrAny",
    "MinJobAge": "600",
    "JobRequeue": "1",
    "JobAcctGatherType": "jobacct_gather/linux",
    "AccountingStorageType": "accounting_storage/none",
    "SchedulerType": "sched/backfill",
    "SchedulerParameters": "bf_interval=2,sched_interval=2,sched_min_interval=100000,requeue_delay=1",
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "REQUEUE",
    "SlurmctldParameters": "preempt_send_user_signal",
}
_PARTITIONS = """
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime=30
PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF
PartitionName=short Nodes=ALL MaxTime=10 PriorityTier=1
"""


class Cluster:
    """Nodes ``n1``, ``n2``, … with ``cpus`` each; partitions main, urgent (preempts main) and short (10 minutes)."""

    def __init__(self, nodes: int = 3, cpus: int = 4, shared: Sequence[Path] = (), **conf: str) -> None:
        """``shared``: directories of /tmp that all nodes see; ``conf``: settings in addition to ``_CONF``."""
        self._place, self._lock = _take_place()
        self._shared = shared
        self._bridge = Bridge(f"rkc{self._place}", f"198.18.{self._place}")
        self.root = _FOLDER / f"rekindle-slurm-{self._place}"
        self._cpus, self._conf, self._first_job = cpus, {**_CONF, **conf}, 1
        self._first_conf = dict(self._conf)
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self._hosts = {name: self._host(number, name) for number, name in enumerate(self.nodes, start=1)}
        self._controller = self._host(_CONTROLLER, "controller")
        self._munged: subprocess.Popen[bytes] | None = None
        self._slurmd: dict[str, int] = {}
        self._slurmctld = 0
        self.disturbed = False

    def _host(self, number: int, name: str) -> Host:
        shared = (self.root, _PROJECT, Path(sys.prefix), *self._shared)
        return Host(self._bridge, number, name, self.root / "hosts" / name, shared)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- the whole of it

    def start(self) -> None:
        """All of it from nothing; returns when each node is idle."""
        shutil.rmtree(self.root, ignore_errors=True)
        for directory in ("hosts", "munge", "state", "spool", "log"):
            (self.root / directory).mkdir(parents=True)
        self._bridge.up()
        self._write_conf()
        self._start_munged()
        self._controller.boot()
        self.start_controller()
        for node in self.nodes:
            self._hosts[node].boot()
            self._start_slurmd(node)
        until(lambda: self._idle() == self.nodes, f"the nodes are idle\n{self.complaints}", 20)
        self.disturbed = False

    def stop(self) -> None:
        """All of it at once: nothing is said to anybody."""
        for host in (*self._hosts.values(), self._controller):
            host.switch_off()
        if self._munged is not None:
            self._munged.kill()
            self._munged.wait()
        self._munged, self._slurmd, self._slurmctld = None, {}, 0
        self._bridge.down()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.root, ignore_errors=True)
        self._lock.close()

    def reset(self) -> None:
        """No jobs, and each node as it was at first; ids of jobs are not used twice."""
        if not self.disturbed and not self.run("squeue", "--noheader"):
            return
        self._first_job += 1000
        self._conf = dict(self._first_conf)
        self.stop()
        self.start()

    # --- commands

    @property
    def conf(self) -> Path:
        return self.root / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """What a client on this machine needs to find the cluster."""
        return {"SLURM_CONF": str(self.conf)}

    def run(self, *command: str, check: bool = True) -> str:
        """A command of Slurm on this machine, which is no node."""
        return run(*command, check=check, environment=self.environment)

    def sbatch(self, script: str, *options: str, output: Path | None = None) -> int:
        """The id of a job with this script."""
        log = output or self.root / "log" / "job-%j.log"
        wanted = ("sbatch", "--parsable", f"--output={log}", "--chdir=/", *options)
        return int(self.run(*wanted, f"--wrap={script}"))

    def state(self, job: int) -> str:
        """State and reason in Slurm's words, as in ``PENDING Resources``; empty where Slurm knows no such job."""
        return self.run(
            "squeue", "--noheader", "--states=all", f"--jobs={job}", "--Format=State: ,Reason:", check=False
        ).strip()

    def reach(self, job: int, state: str) -> None:
        """Returns when Slurm says so of ``job``; fails when it has ended otherwise."""

        def reached() -> bool:
            now = self.state(job).partition(" ")[0]
            assert now == state or now in _UNDER_WAY, f"job {job} is {now}, not {state}\n{self.complaints}"
            return now == state

        until(reached, f"job {job} is {state}: {self.state(job)}\n{self.complaints}", 60)

    def node_states(self) -> dict[str, str]:
        lines = self.run(
            "sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %t", check=False
        ).splitlines()
        return dict(line.split() for line in lines)

    def _idle(self) -> list[str]:
        return sorted(node for node, state in self.node_states().items() if state == "idle")

    # --- nodes

    def host(self, node: str) -> Host:
        return self._hosts[node]

    def in_node(self, node: str, *command: str, check: bool = True) -> str:
        """What ``command`` prints on that node."""
        return self._hosts[node].run("env", f"SLURM_CONF={self.conf}", *command, check=check)

    def kill(self, node: str, mode: str) -> None:
        """``mode``: power, crash, link, drop, hang (see ``Host.fail``), or slurmd: only Slurm's daemon dies there."""
        self.disturbed = True
        if mode == SLURMD:
            os.kill(self._slurmd.pop(node), signal.SIGKILL)
            return
        self._hosts[node].fail(mode)

    def unwell(self, node: str) -> Host:
        """The host, for what makes it unwell until ``heal`` or ``reset``."""
        self.disturbed = True
        return self._hosts[node]

    def heal(self, node: str) -> None:
        """Undo ``kill`` and what is wrong with its host; returns when Slurm uses the node again."""
        if self._hosts[node].heal() or node not in self._slurmd:
            self._start_slurmd(node)
        until(lambda: self._answers(node), f"{node} is back\n{self.complaints}", 60)

    def _answers(self, node: str) -> bool:
        state = self.node_states().get(node, "")
        if state.startswith(("down", "drain")) and not state.endswith("*"):
            self.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        return state in ("idle", "mix", "alloc", "comp")

    # --- the controller

    def stop_controller(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop slurmctld: jobs keep running, Slurm answers no command. SIGKILL loses what it has not saved yet."""
        self.disturbed = True
        os.kill(self._slurmctld, number)
        until(lambda: not Path(f"/proc/{self._slurmctld}").exists(), "slurmctld has ended")

    def start_controller(self) -> None:
        """Start slurmctld with what its state directory has."""
        log = self.root / "log" / "slurmctld.out"
        self._slurmctld = self._controller.start("slurmctld", "-D", "-f", str(self.conf), log=log)
        until(self._up, f"slurmctld answers\n{self.complaints}", 20)

    def configure(self, *, restart: bool = False, **conf: str) -> None:
        """Change settings of slurm.conf until ``reset``: while it runs, or, without any job, by a ``restart``."""
        self._conf |= conf
        if restart:
            self.stop()
            self.start()
        else:
            self._write_conf()
            self.run("scontrol", "reconfigure")
        self.disturbed = True

    def _up(self) -> bool:
        return " UP" in self.run("scontrol", "ping", check=False)

    # --- the parts

    def _start_munged(self) -> None:
        key = self.root / "munge" / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={self.root}/munge/{name}" for option, name in files.items()]
        self._munged = start_tied("munged", "--foreground", *options, log=self.root / "log" / "munged.out")
        until(lambda: (self.root / "munge" / "socket").exists(), "munged listens")

    def _start_slurmd(self, node: str) -> None:
        (self.root / "spool" / node).mkdir(exist_ok=True)
        log = self.root / "log" / f"slurmd-{node}.out"
        self._slurmd[node] = self._hosts[node].start(
            "slurmd", "-D", "-N", node, "-f", str(self.conf), log=log, environment=self.environment
        )

    def _write_conf(self) -> None:
        hosts = {name: host.address for name, host in self._hosts.items()} | {"controller": self._controller.address}
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in hosts.items())]
        (self.root / "hosts" / "etc-hosts").write_text("".join(f"{line}\n" for line in lines))
        settings = {
            "ClusterName": self._bridge.tag,
            "SlurmctldHost": f"controller({self._controller.address})",
            "AuthInfo": f"socket={self.root}/munge/socket",
            "StateSaveLocation": f"{self.root}/state",
            "SlurmdSpoolDir": f"{self.root}/spool/%n",
            "SlurmctldPidFile": f"{self.root}/slurmctld.pid",
            "SlurmdPidFile": f"{self.root}/spool/%n/slurmd.pid",
            "SlurmctldLogFile": f"{self.root}/log/slurmctld.log",
            "SlurmdLogFile": f"{self.root}/log/slurmd-%n.log",
            "FirstJobId": str(self._first_job),
            **self._conf,
        }
        nodes = [f"NodeName=DEFAULT CPUs={self._cpus} RealMemory=8000 State=UNKNOWN"]
        nodes += [f"NodeName={name} NodeAddr={host.address}" for name, host in self._hosts.items()]
        text = "\n".join([*(f"{name}={value}" for name, value in settings.items()), *nodes]) + _PARTITIONS
        self.conf.write_text(text)

    @property
    def complaints(self) -> str:
        """The ends of the logs, for a test that fails."""
        logs = sorted((self.root / "log").glob("*.log"))
        return "\n".join(f"--- {path}\n{path.read_text(errors='replace')[-2000:]}" for path in logs)


def why_no_cluster() -> str | None:
    """Why there can be no cluster on this machine; None if there can."""
    why = why_no_hosts(_COMMANDS)
    if why is not None and why.startswith("not installed"):
        return f"{why} (apt-get install --no-install-recommends {PACKAGES})"
    return why


def _take_place() -> tuple[int, IO[str]]:
    """A number that no other cluster of this machine has, and the lock that keeps it."""
    for place in range(_PLACES):
        lock = (_FOLDER / f"rekindle-slurm-{place}.lock").open("w")  # held as long as the cluster
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        return place, lock
    raise AssertionError(f"{_PLACES} clusters run on this machine already")
