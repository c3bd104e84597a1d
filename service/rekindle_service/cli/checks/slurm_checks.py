"""Whether jobs can run on the Slurm cluster of this machine: its settings, and what each of its nodes reports."""

import json
import math
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path
from typing import Any

from rekindle_service.cli.checks import Finding, ok, problem, warning
from rekindle_service.cli.formatting import duration
from rekindle_service.launch.slurm.slurm_commands import (
    SlurmCommands,
    SlurmError,
    missing_commands,
    slurm_environment,
)

_SECONDS = 60.0  # for a node to start or to answer
_IMMEDIATE = 20  # seconds after which Slurm gives up where a node is not free
_TOGETHER = 32  # nodes that are asked at a time
_SHOWN = 8  # nodes that a finding names
_CLOCK = 2.0  # seconds by which clocks may differ
_SETTING = re.compile(r"^(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)
_FIELD = re.compile(r"(\w+)=(.*?)(?=\s+\w+=|\s*$)")
_SPEAKER = re.compile(r"^(srun|slurm\S*): ((error|fatal): )?")
_USABLE = {"IDLE", "MIXED", "PLANNED", "CLOUD", "COMPLETING", "DYNAMIC_NORM", "POWERED_UP"}

# Reports on its node; then connects where each line of its input says, and replies with the time and what went wrong.
_PROBE = """
import importlib.machinery, importlib.metadata, importlib.util, json, os, pathlib, socket, sys, time
directory, secret, node = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
answer = {"uid": os.getuid(), "python": sys.version.split()[0], **dict.fromkeys(("home", "torch", "address", "port"))}
new, doing = directory / (node + ".new"), "cannot be read"
try:
    if (directory / "secret").read_text() != secret:
        raise OSError(0, "another directory is there")
    doing = "cannot be written"
    new.write_text(secret + node)
    doing = "renames no files"
    new.rename(directory / node)
except OSError as error:
    answer["home"] = f"{doing} ({error.strerror})"
torch = importlib.util.find_spec("torch")
if torch and importlib.machinery.PathFinder.find_spec("torch.distributed", torch.submodule_search_locations):
    answer["torch"] = importlib.metadata.version("torch")
try:
    answer["address"] = socket.gethostbyname(socket.gethostname())
    listener = socket.create_server((answer["address"], 0))
    answer["port"] = listener.getsockname()[1]
except OSError:
    pass
print("rekindle " + json.dumps(answer), flush=True)
for line in sys.stdin:
    peer, wrong = json.loads(line), None
    if peer == "end":
        break
    try:
        if peer:
            socket.create_connection(peer, 5).close()
    except OSError as error:
        wrong = str(error)
    print("rekindle " + json.dumps([time.time(), wrong]), flush=True)
"""


def slurm(home: Path, python: str, host_timeout: float, partition: str | None = None) -> list[Finding]:
    """Start a probe on each node of ``partition`` (None: Slurm's default), which takes some seconds."""
    if missing := missing_commands():
        advice = "Install Slurm's commands (apt install slurm-client), with the slurm.conf of the cluster."
        return [problem("commands", f"not found: {', '.join(missing)}", advice)]
    found = [ok("commands", f"{shutil.which('sbatch')} and the others are there")]
    commands = SlurmCommands()
    try:
        commands.list_jobs()
        config = dict(_SETTING.findall(commands.show("config")))
        partitions, nodes = (_records(commands.show(kind, "--all", "--oneliner")) for kind in ("partitions", "nodes"))
    except SlurmError as error:
        advice = "Check slurmctld and munge: scontrol ping, systemctl status munge. Running jobs are not affected."
        return [*found, problem("controller", f"does not answer: {error}", advice)]
    found += [ok("controller", f"answers, Slurm {config.get('SLURM_VERSION', '?')}"), *timeouts(config, host_timeout)]
    wanted = ("Default", "YES") if partition is None else ("PartitionName", partition)
    chosen = next((each for each in partitions if each.get(wanted[0]) == wanted[1]), None)
    if chosen is None:
        names = ", ".join(each["PartitionName"] for each in partitions)
        missing_one = "Slurm has no default partition" if partition is None else f"Slurm has no partition {partition}"
        return [*found, problem("partition", missing_one, f"Name one by --partition: {names}.")]
    name = chosen["PartitionName"]
    members = [each for each in nodes if name in each.get("Partitions", "").split(",")]
    return [*found, memory(config, chosen, members), *_nodes(home, python, name, members, config)]


def _records(text: str) -> list[dict[str, str]]:
    """Read what ``scontrol show --oneliner`` prints."""
    return [dict(_FIELD.findall(line)) for line in text.splitlines() if line.strip()]


def _gives_out_memory(config: Mapping[str, str]) -> bool:
    return "MEMORY" in config.get("SelectTypeParameters", "").upper()


def memory(config: Mapping[str, str], partition: Mapping[str, str], nodes: Sequence[Mapping[str, str]]) -> Finding:
    """Check that a job gets a part of the memory of its nodes. The arguments are what `scontrol show` prints."""
    if not _gives_out_memory(config):
        return ok("memory", "Slurm allocates CPUs, and no memory (SelectTypeParameters)")
    for settings, name in ((each, name) for each in (partition, config) for name in ("DefMemPerCPU", "DefMemPerNode")):
        if (value := settings.get(name, "UNLIMITED")) != "UNLIMITED":
            return ok("memory", f"a job that requests none gets {value} MB ({name})")
    shares = [int(each["RealMemory"]) // int(each["CPUTot"]) for each in nodes]
    advice = f"Set DefMemPerCPU={min(shares, default=1000)} in slurm.conf: the memory of a node by its CPUs."
    detail = "every job gets all memory of its nodes: a second job waits while CPUs are free"
    return warning("memory", detail, advice)


def timeouts(config: dict[str, str], host_timeout: float) -> list[Finding]:
    """``config``: of `scontrol show config`."""
    lost, kill, age = (_seconds(config, name) for name in ("SlurmdTimeout", "KillWait", "MinJobAge"))
    findings = [_lost_nodes(lost, host_timeout)]
    enough = f"a job has {kill} s to save when Slurm cancels or displaces it (KillWait)"
    if kill >= 30:
        findings.append(ok("time to save", enough))
    else:
        advice = "Set KillWait=90, or GraceTime of the partition where preemption is used."
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
    """The number of ``30 sec``; 0 where it is not set."""
    number = config.get(name, "").partition(" ")[0]
    return int(number) if number.isdecimal() else 0


def _nodes(
    home: Path, python: str, partition: str, nodes: Sequence[Mapping[str, str]], config: Mapping[str, str]
) -> list[Finding]:
    """Ask the nodes what they find; those that Slurm cannot use now are named with their state."""
    reasons = {each["NodeName"]: each.get("Reason", "").partition(" [")[0] for each in nodes}  # without who and when
    states = {each["NodeName"]: f"{each['State']} ({reasons[each['NodeName']]})".removesuffix(" ()") for each in nodes}
    usable = [each["NodeName"] for each in nodes if set(each["State"].split("+")) <= _USABLE]
    command = ["srun", f"--partition={partition}", "--nodes=1", "--ntasks=1", f"--immediate={_IMMEDIATE}", "--time=2"]
    command += ["--chdir=/", "--job-name=rekindle-doctor", "--quiet", "--quit-on-interrupt"]
    command += ["--mem=500M"] if _gives_out_memory(config) else []
    answers: dict[str, dict[str, Any]] = {}
    home.mkdir(parents=True, exist_ok=True)
    groups = math.ceil(len(usable) / _TOGETHER)
    with tempfile.TemporaryDirectory(dir=home, prefix=".doctor-") as directory:
        for group in range(groups):  # of about the same size: a node alone connects to none
            answers |= _ask(usable[group::groups], command, python, Path(directory))
    busy = {name: why for name, each in answers.items() if "allocate resources" in (why := each.get("failed", ""))}
    skipped = {name: state for name, state in states.items() if name not in usable} | busy
    findings = [*judge({name: answers[name] for name in usable if name not in busy}, home)]
    if skipped:
        advice = "Run the check again when Slurm can use them: sinfo -R says why a node is down or drained."
        findings.append(warning("not checked", _by_text(skipped), advice))
    return findings


def _ask(nodes: Sequence[str], command: Sequence[str], python: str, directory: Path) -> dict[str, dict[str, Any]]:
    """The answer of each node, or as ``failed`` why it gave none."""
    secret = secrets.token_hex(16)
    (directory / "secret").write_text(secret)
    probes: dict[str, subprocess.Popen[str]] = {}
    with ExitStack() as stack, ThreadPoolExecutor(len(nodes)) as pool:
        for node in nodes:
            own = [*command, f"--nodelist={node}", python, "-I", "-c", _PROBE, str(directory), secret, node]
            started = subprocess.Popen(
                own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env=slurm_environment(os.environ),
            )  # fmt: skip
            probes[node] = stack.enter_context(started)
        answers = dict(zip(nodes, pool.map(_begin, probes.values()), strict=True))
        for node, answer in answers.items():
            if answer.get("home", "") is None:
                answer["home"] = _unseen(directory / node, secret + node)
        ring = [node for node in nodes if _has_address(answers[node])]
        pairs = list(zip(ring, ring[1:] + ring[:1], strict=True)) if len(ring) > 1 else []
        peers = [[answers[peer]["address"], answers[peer]["port"]] for _, peer in pairs]
        for (node, peer), reply in zip(
            pairs, pool.map(_exchange, [probes[node] for node, _ in pairs], peers), strict=True
        ):
            if reply:
                answers[node]["connects"] = reply[1] and f"does not reach {peer}: {reply[1]}"
        list(pool.map(_exchange, probes.values(), repeat("end")))
        return answers


def _begin(probe: "subprocess.Popen[str]") -> dict[str, Any]:
    """``ahead``: seconds by which the clock of the node is ahead of this one's, at most ``within`` more or less."""
    answer, before = _reply(probe), time.time()
    reply, after = answer and _exchange(probe, None), time.time()
    if not reply:
        lines = [_SPEAKER.sub("", line).strip() for line in probe.stderr or () if ": task " not in line]
        return {"failed": lines[-1] if lines else f"it gave no answer (exit code {probe.wait()})"}
    return {**answer, "ahead": reply[0] - (before + after) / 2, "within": (after - before) / 2}


def _exchange(probe: "subprocess.Popen[str]", peer: list[Any] | str | None) -> Any:
    """The node's time and what went wrong when it connected to ``peer``; None from a probe that has ended."""
    try:
        print(json.dumps(peer), file=probe.stdin, flush=True)
    except OSError:
        probe.communicate()  # closes the broken pipe, too
        return None
    return _reply(probe)


def _reply(probe: "subprocess.Popen[str]") -> Any:
    """Read its next answer, whatever else a prolog prints; None at the end, which comes after ``_SECONDS``."""
    timer = threading.Timer(_SECONDS, probe.kill)
    timer.start()
    lines = (line for line in probe.stdout or () if line.startswith("rekindle "))
    reply = next((json.loads(line.removeprefix("rekindle ")) for line in lines), None)
    timer.cancel()
    return reply


def _unseen(path: Path, content: str) -> str | None:
    """Why this machine does not see what a node has written."""
    try:
        return None if path.read_text() == content else "shows other content here than the node wrote"
    except OSError as error:
        return f"does not show here what the node wrote ({error.strerror})"


def judge(answers: Mapping[str, dict[str, Any]], home: Path) -> Iterator[Finding]:
    """``answers``: what each node reported."""
    failed = {node: each["failed"] for node, each in answers.items() if "failed" in each}
    if failed:
        advice = "Python must start at the same path on all nodes (--python); the log of slurmd on the node says more."
        yield problem("probe", _by_text(failed), advice)
    answers = {node: each for node, each in answers.items() if node not in failed}
    if not answers:
        advice = "See sinfo -N -l: the probe needs a node that is idle now."
        yield problem("nodes", "no node answers", advice)
        return
    yield ok("nodes", f"{_named(answers)} {'answers' if len(answers) == 1 else 'answer'}")
    if lacking := {node: f"{home} {each['home']}" for node, each in answers.items() if each["home"] is not None}:
        advice = "Put the home on a file system that all nodes mount read-write at this path (NFS): REKINDLE_HOME."
        yield problem("directory", _by_text(lacking), advice)
    else:
        yield ok("directory", f"{home} is read and written by all nodes that answer")
    yield _clocks(answers)
    yield _users(answers)
    yield from _versions(answers)
    yield from _connections(answers)


def _clocks(answers: Mapping[str, dict[str, Any]]) -> Finding:
    wrong = {
        node: f"{duration(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} this machine"
        for node, each in answers.items()
        if abs(ahead := each["ahead"]) > _CLOCK + each["within"]
    }
    if not wrong:
        return ok("clocks", "those of the nodes agree with this one")
    return warning("clocks", _by_text(wrong), "Run an NTP client on all machines: times on the page would be wrong.")


def _users(answers: Mapping[str, dict[str, Any]]) -> Finding:
    wrong = {node: f"has the number {each['uid']}" for node, each in answers.items() if each["uid"] != os.getuid()}
    if not wrong:
        return ok("user", f"has the number {os.getuid()} everywhere")
    advice = "Give the account the same uid on all machines."
    return problem("user", f"{_by_text(wrong)}; here {os.getuid()}", advice)


def _versions(answers: Mapping[str, dict[str, Any]]) -> Iterator[Finding]:
    for name in ("python", "torch"):
        found = {node: each[name] or "none" for node, each in answers.items()}
        versions = set(found.values())
        if "none" in versions:
            advice = (
                "Install torch (with torch.distributed) for this interpreter on all nodes, or name another by --python."
            )
            yield problem(name, _by_text(found), advice)
        elif len(versions) > 1:
            yield problem(name, f"differs: {_by_text(found)}", "Install the same version on all nodes.")
        else:
            yield ok(name, f"{versions.pop()} on all nodes that answer")


def _has_address(answer: Mapping[str, Any]) -> bool:
    """Whether the node listens on the address that its host name has."""
    return answer.get("port") is not None and not answer["address"].startswith("127.")


def _connections(answers: Mapping[str, dict[str, Any]]) -> Iterator[Finding]:
    """Each node listens on a free port, to which another connects."""
    lost = {node: each["address"] or "nothing" for node, each in answers.items() if not _has_address(each)}
    if lost:
        detail = _by_text({node: f"resolves its own name to {address}" for node, address in lost.items()})
        yield warning("addresses", detail, "Give the name its address in the network, in DNS or /etc/hosts.")
    if wrong := {node: each["connects"] for node, each in answers.items() if each.get("connects") is not None}:
        advice = "Open all ports above 1023 between the nodes: training listens on any free one."
        yield problem("connections", _by_text(wrong), advice)
    elif any("connects" in each for each in answers.values()):
        yield ok("connections", "nodes reach each other on free ports")
    else:
        detail = "whether nodes reach each other was not checked: that needs two nodes that are free"
        yield warning("connections", detail, "Run the check again when two nodes are idle.")


def _named(nodes: Iterable[str]) -> str:
    """``n1, n2``, or the first of many and how many others."""
    names = list(nodes)
    rest = f" and {len(names) - _SHOWN} others" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest


def _by_text(texts: Mapping[str, str]) -> str:
    """``n1, n3: Read-only file system; n2: …``: the nodes by what there is to say of them."""
    nodes = defaultdict(list)
    for node, text in texts.items():
        nodes[text].append(node)
    return "; ".join(f"{_named(names)}: {text}" for text, names in nodes.items())
