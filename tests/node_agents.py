"""What the keepers of a cluster's nodes do with agents and store, without the rest of them: driven by the test."""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rekindle.contract.files import write_json
from rekindle.contract.job import JobSpec
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.torchrun.node_plan import NodePlan
from script_process import ScriptProcess

_SCRIPTS = Path(__file__).parent / "faults" / "scripts"
_KEEPER = """
import json, os, sys
from pathlib import Path
from rekindle.contract.environment import attempt_environment
from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import LaunchMode
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.torchrun.agent_launcher import AgentLauncher
from rekindle.keeper.torchrun.node_plan import NodePlan
from rekindle.keeper.torchrun.preload import preload
from rekindle.keeper.torchrun.store_server import start_store_server

run_dir = RunDir(Path(sys.argv[1]))
spec = JobSpec.from_json(json.loads(run_dir.spec.read_bytes()))
ranks = int(sys.argv[2])
if spec.warm:
    preload(spec, run_dir.code)
launcher = AgentLauncher(run_dir, LaunchMode.TORCHRUN, ranks, lambda: None, cluster=True)
print("ready", flush=True)
for line in sys.stdin:
    match json.loads(line):
        case ["store", host, allowed, secret]:
            answer = start_store_server(host, allowed, secret)
        case ["start", attempt, plan]:
            environment = attempt_environment(run_dir=run_dir, attempt=attempt, generation="g", snapshot_policy="{}")
            start = launcher.start_warm if spec.warm else launcher.start_cold
            answer = start(attempt, environment, NodePlan.from_json(plan))
        case ["prefork", attempt]:
            launcher.prefork(attempt)
            answer = launcher.standby
        case ["wait", pid]:
            answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(json.dumps(answer), flush=True)
launcher.discard()
os._exit(0)
"""


class Node(ScriptProcess):
    """One node's keeper; ``command`` is what runs words on its host."""

    def __init__(self, run_dir: RunDir, ranks: int, address: str, command: Sequence[str] = ()) -> None:
        self.address, self.agent = address, 0
        with run_dir.keeper_log.open("ab") as log:
            super().__init__("-P", "-c", _KEEPER, run_dir.root, ranks, command=command, stderr=log)

    def ready(self) -> None:
        assert self.line() == "ready"

    def answer(self, *words: Any) -> Any:
        return json.loads(self.ask(json.dumps(words)))

    def wait(self) -> int:
        """Exit code of its agent."""
        return int(self.answer("wait", self.agent))


class NodesRun:
    """A job on several nodes."""

    def __init__(self, root: Path, script: str, *args: str, ranks: int = 1, warm: bool = True, nodes: int = 2) -> None:
        self.run_dir, self.ranks, self.secret = RunDir(root), ranks, os.urandom(32).hex()
        for directory in (root, self.run_dir.code, self.run_dir.attempts, self.run_dir.snapshots):
            directory.mkdir(parents=True)
        shutil.copyfile(_SCRIPTS / script, self.run_dir.code / "train.py")
        spec = JobSpec(
            name="nodes", kind="script", target="train.py", python=sys.executable, device="cpu", warm=warm,
            min_ranks=nodes * ranks, max_ranks=nodes * ranks, args=list(args),
        )  # fmt: skip
        write_json(self.run_dir.spec, spec.to_json())
        self.nodes: list[Node] = []

    def add_node(self, address: str, command: Sequence[str] = ()) -> Node:
        self.nodes.append(Node(self.run_dir, self.ranks, address, command))
        return self.nodes[-1]

    def start(self, attempt: int = 1, nodes: Sequence[Node] | None = None) -> int:
        """Begin an attempt on ``nodes``, the first of which is the head; the port of its store."""
        nodes = self.nodes if nodes is None else nodes
        self.run_dir.attempt(attempt).ranks.mkdir(parents=True)
        addresses = [node.address for node in nodes]
        port = int(nodes[0].answer("store", addresses[0], addresses[1:], self.secret))
        for index, node in enumerate(nodes):
            plan = NodePlan(index, len(nodes), self.ranks, node.address, addresses[0], port, addresses, self.secret)
            node.agent = node.answer("start", attempt, plan.to_json())
        return port

    def log(self, rank: int, stream: str = "stdout", attempt: int = 1) -> str:
        path = self.run_dir.attempt(attempt).rank(rank).log(stream)
        return path.read_text() if path.exists() else ""

    def all_logs(self) -> str:
        """All that was logged."""
        logs = [*self.run_dir.attempts.rglob("*.log"), self.run_dir.keeper_log]
        return "\n".join(f"--- {log}\n{log.read_text()[-3000:]}" for log in logs if log.is_file())

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
