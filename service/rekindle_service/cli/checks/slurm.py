"""Whether jobs can run on the Slurm cluster of this machine: its settings, and what two of its nodes report."""

import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rekindle_service.cli.checks.finding import Finding, ok, problem, warning
from rekindle_service.launchers.slurm.batch_job import DRAIN_SECONDS
from rekindle_service.launchers.slurm.commands import (
    SlurmCommands,
    SlurmError,
    missing_commands,
    sentence_of,
    slurm_environment,
)

_SECONDS = 60.0  # for two nodes to start and to answer
_IMMEDIATE = 20  # seconds after which Slurm gives up where no node is free
_CLOCK = 2.0  # seconds by which clocks may differ
_SETTING = re.compile(r"^(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)

_PROBE = """
import importlib.metadata, importlib.util, json, os, pathlib, socket, sys, time
directory, secret = pathlib.Path(sys.argv[1]), sys.argv[2]
answer = {"host": socket.gethostname(), "time": time.time(), "uid": os.getuid(), "python": sys.version.split()[0]}
try:
    answer["sees"] = (directory / "secret").read_text() == secret
except OSError as error:
    answer["sees"], answer["why"] = False, str(error)
found = importlib.util.find_spec("torch") is not None
answer["torch"] = importlib.metadata.version("torch") if found else None
try:
    answer["address"] = socket.gethostbyname(socket.gethostname())
except OSError as error:
    answer["address"] = None
if answer["sees"] and answer["address"]:
    meeting, deadline = directory / "listener", time.monotonic() + 15
    try:
        if os.environ.get("SLURM_PROCID") == "0":
            with socket.create_server((answer["address"], 0)) as listener:
                listener.settimeout(15)
                new = directory / "new"
                new.write_text(json.dumps(listener.getsockname()))
                new.rename(meeting)
                if os.environ.get("SLURM_NTASKS") != "1":
                    listener.accept()[0].close()
        else:
            while not meeting.exists() and time.monotonic() < deadline:
                time.sleep(0.1)
                os.listdir(directory)
            socket.create_connection(tuple(json.loads(meeting.read_text())), 10).close()
        answer["connects"] = True
    except (OSError, ValueError) as error:
        answer["connects"] = str(error)
print("rekindle " + json.dumps(answer))
"""


def slurm(home: Path, python: str, host_timeout: float, commands: SlurmCommands | None = None) -> list[Finding]:
    """Starts a probe on two nodes, which takes some seconds."""
    if missing := missing_commands():
        advice = "Install Slurm's commands (apt install slurm-client), with the slurm.conf of the cluster."
        return [problem("commands", f"not found: {', '.join(missing)}", advice)]
    found = [ok("commands", f"{shutil.which('sbatch')} and the others are there")]
    commands = commands or SlurmCommands()
    try:
        commands.list_jobs()
        config = dict(_SETTING.findall(commands.show("config")))
    except SlurmError as error:
        advice = "Check slurmctld and munge: scontrol ping, systemctl status munge. Running jobs are not affected."
        return [*found, problem("controller", f"does not answer: {error}", advice)]
    found.append(ok("controller", f"answers, Slurm {config.get('SLURM_VERSION', '?')}"))
    return [*found, *timeouts(config, host_timeout), *nodes(home, python)]


def timeouts(config: dict[str, str], host_timeout: float) -> list[Finding]:
    """``config``: of `scontrol show config`."""
    lost, kill, age = (_seconds(config, name) for name in ("SlurmdTimeout", "KillWait", "MinJobAge"))
    findings = [_lost_nodes(lost, host_timeout)]
    enough = f"a job has {kill} s to save when Slurm cancels or displaces it (KillWait)"
    if kill >= 30:
        findings.append(ok("time to save", enough))
    else:
        advice = (
            f"Set KillWait={DRAIN_SECONDS}, or GraceTime of the partition where preemption is used; at the time limit "
            f"of an allocation it is {DRAIN_SECONDS} s in any case."
        )
        findings.append(warning("time to save", enough, advice))
    memory = f"Slurm forgets a job {age} s after its end (MinJobAge)"
    if 0 < age < 30:
        findings.append(warning("ended jobs", memory, "Set MinJobAge=300, so that the server sees how jobs ended."))
    else:
        findings.append(ok("ended jobs", memory))
    return findings


def _lost_nodes(seconds: int, host_timeout: float) -> Finding:
    """``seconds``: Slurm's own time-out."""
    if not seconds:
        problem = "SlurmdTimeout is 0: Slurm never notices a lost node"
        return warning("lost nodes", problem, "Set it, as in SlurmdTimeout=120.")
    both = f"rekindle notices one after {host_timeout:.0f} s, Slurm after {seconds} s (SlurmdTimeout)"
    if seconds > host_timeout:
        return ok("lost nodes", both)
    advice = "A job then restarts after a cut of the network that rekindle would wait out: set SlurmdTimeout=120."
    return warning("lost nodes", both, advice)


def _seconds(config: dict[str, str], name: str) -> int:
    """Of ``30 sec``; 0 where it is not there."""
    number = config.get(name, "").partition(" ")[0]
    return int(number) if number.isdecimal() else 0


def nodes(home: Path, python: str) -> list[Finding]:
    """What two nodes, or one, find on themselves."""
    home.mkdir(parents=True, exist_ok=True)
    with _meeting_place(home) as (directory, secret):
        for count in (2, 1):
            before = time.time()
            answers, complaint = _ask(count, python, directory, secret)
            if answers:
                return [*judge(answers, home, before, time.time()), *_alone(count)]
    advice = "See sinfo -N -l: the probe needs a node that is idle now, and Python at the same path on all nodes."
    return [problem("nodes", f"no node answers: {complaint}", advice)]


@contextmanager
def _meeting_place(home: Path) -> Iterator[tuple[Path, str]]:
    secret = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(dir=home, prefix=".doctor-") as name:
        (Path(name) / "secret").write_text(secret)
        yield Path(name), secret


def _alone(count: int) -> list[Finding]:
    advice = "Run the check again when two nodes are idle."
    detail = "only one node was free: whether nodes reach each other was not checked"
    return [warning("connections", detail, advice)] if count == 1 else []


def _ask(count: int, python: str, directory: Path, secret: str) -> tuple[list[dict[str, Any]], str]:
    """The answers of ``count`` nodes, or none and why."""
    (directory / "listener").unlink(missing_ok=True)
    command = ["srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", f"--immediate={_IMMEDIATE}"]
    command += ["--time=2", "--chdir=/", "--job-name=rekindle-doctor", "--quiet"]
    command += [python, "-I", "-c", _PROBE, str(directory), secret]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_SECONDS, check=False,
            env=slurm_environment(os.environ),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], str(error)
    lines = [line.removeprefix("rekindle ") for line in answer.stdout.splitlines() if line.startswith("rekindle {")]
    return [json.loads(line) for line in lines], sentence_of(answer.stderr) or f"exit code {answer.returncode}"


def judge(answers: Sequence[dict[str, Any]], home: Path, before: float, after: float) -> list[Finding]:
    """``before`` and ``after``: when this machine asked and had the answers, in seconds since the epoch."""
    hosts = ", ".join(each["host"] for each in answers)
    blind = [each for each in answers if not each["sees"]]
    findings = [ok("nodes", f"{hosts} answer")]
    if blind:
        advice = f"Put the home on a file system that all nodes mount at this path (NFS): REKINDLE_HOME, now {home}."
        where = f"{blind[0]['host']} does not see {home} ({blind[0].get('why', 'another directory is there')})"
        findings.append(problem("directory", where, advice))
    else:
        findings.append(ok("directory", f"{hosts} see {home}"))
    findings += [_clocks(answers, before, after), _users(answers), *_versions(answers)]
    return findings if blind else [*findings, *_connections(answers)]


def _clocks(answers: Sequence[dict[str, Any]], before: float, after: float) -> Finding:
    wrong = [each for each in answers if not before - _CLOCK <= each["time"] <= after + _CLOCK]
    if not wrong:
        return ok("clocks", "those of the nodes agree with this one")
    ahead = wrong[0]["time"] - after
    detail = f"that of {wrong[0]['host']} is {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}"
    return warning("clocks", detail, "Run an NTP client on all machines: times on the page would be wrong.")


def _users(answers: Sequence[dict[str, Any]]) -> Finding:
    wrong = [each for each in answers if each["uid"] != os.getuid()]
    if not wrong:
        return ok("user", f"has the number {os.getuid()} everywhere")
    detail = f"has the number {wrong[0]['uid']} on {wrong[0]['host']}, and {os.getuid()} here"
    return problem("user", detail, "Give the account the same uid on all machines.")


def _versions(answers: Sequence[dict[str, Any]]) -> Iterator[Finding]:
    for name in ("python", "torch"):
        found = {each[name] for each in answers}
        listed = ", ".join(f"{each['host']}: {each[name] or 'none'}" for each in answers)
        if None in found:
            yield problem(name, listed, "Install torch for this interpreter on all nodes, or name another by --python.")
        elif len(found) > 1:
            yield problem(name, f"differs: {listed}", "Install the same version on all nodes.")
        else:
            yield ok(name, f"{found.pop()} on all nodes that answered")


def _connections(answers: Sequence[dict[str, Any]]) -> Iterator[Finding]:
    """Nodes listen on free ports of the address that their host name has."""
    for each in answers:
        if each["address"] is None or each["address"].startswith("127."):
            detail = f"{each['host']} resolves its own name to {each['address'] or 'nothing'}"
            yield warning("addresses", detail, "Give the name its address in the network, in DNS or /etc/hosts.")
            return
    wrong = next((each for each in answers if each["connects"] is not True), None)
    if wrong is not None:
        advice = "Open all ports above 1023 between the nodes: training listens on any free one."
        yield problem("connections", f"{wrong['host']}: {wrong['connects']}", advice)
    elif len(answers) > 1:
        yield ok("connections", "nodes reach each other on free ports")
