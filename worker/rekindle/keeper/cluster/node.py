"""``python -P -m rekindle.keeper.cluster.node RUN_DIR LAUNCH HOST [ADDRESS]``: the keeper of one node.

Started by the leading keeper, one per node, through ``enter``. Like the keeper of a job on one machine it has torch
imported and forks the agents; it decides nothing, and writes nothing of the job but what concerns its own ranks.
"""

import os
import secrets
import shutil
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from rekindle.contract.environment import NODE
from rekindle.contract.job import JobSpec
from rekindle.contract.processes import descendants, forbid_core_dumps, set_child_subreaper, set_process_name
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.leader_records import Leader
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.attempt.plan import AttemptPlan
from rekindle.keeper.cluster.home_proof import HomeProof
from rekindle.keeper.cluster.messages import Begin, Hello, Leave, Message, Prepare, Prepared, Terminated
from rekindle.keeper.cluster.node_attempt import NodeAttempt
from rekindle.keeper.cluster.node_link import LeaderLostError, NodeLink
from rekindle.keeper.cluster.versions import own_versions
from rekindle.keeper.event_loop import ControlFifo, EventLoop
from rekindle.keeper.observers.usage import GpuMemory
from rekindle.keeper.private_environment import SecretError, make_private_tmp, read_secrets
from rekindle.keeper.rank_processes.process_tree import kill_all, orphans_of, reap_children
from rekindle.keeper.torchrun.agent_launcher import AgentLauncher
from rekindle.keeper.torchrun.preload import preload
from rekindle.keeper.torchrun.store_server import start_store_server

_WELCOME_TIMEOUT = 60.0  # seconds
_LEADER_TIMEOUT = 30.0  # seconds for leader.json to be seen here
_IDLE = 60.0  # seconds; nothing is due then, and events end the wait


class UnusableError(Exception):
    """This node cannot run ranks of the job; the message says why."""


class NodeKeeper:
    """Runs what the leading keeper asks for, one attempt after another."""

    def __init__(self, run_dir: RunDir, spec: JobSpec, link: NodeLink, events: EventLoop) -> None:
        self._run_dir, self._spec, self._link, self._events = run_dir, spec, link, events
        self._launcher = AgentLauncher(run_dir, spec.launch, spec.ranks_per_node, events.close, cluster=True)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "") if spec.device_kind == "cuda" else ""
        self._gpus = [name for name in visible.split(",") if name]  # as Slurm has numbered them
        self._gpu_memory = GpuMemory(self._gpus)
        self._inbox: list[Message] = []
        self._terminated = False
        self._store: tuple[int, int] | None = None  # attempt, port
        link.attend(self._inbox.append)

    def serve(self) -> bool:
        """Until the leading keeper lets this one go: whether the job has ended. Raises LeaderLostError."""
        try:
            while True:
                events = self._events.wait(_IDLE)
                self._note_signals(events.signals)
                while self._inbox:
                    message = self._inbox.pop(0)
                    if isinstance(message, Leave):
                        return message.is_over
                    if isinstance(message, Prepare):
                        self._prepare(message)
                    elif isinstance(message, Begin):
                        self._run(message)
        finally:
            self._launcher.discard()

    def _note_signals(self, signals: list[int]) -> None:
        if signals and not self._terminated:
            self._terminated = True
            self._link.send(Terminated())

    def _prepare(self, message: Prepare) -> None:
        """Serve the store of the attempt's ranks; it ends with the attempt's other processes."""
        try:
            port = start_store_server(message.address, message.addresses, message.secret)
        except Exception as error:  # noqa: BLE001  # whatever keeps this node from serving is the leader's to report
            self._link.send(Prepared(message.attempt, error=f"the store of the ranks cannot be served: {error}"))
        else:
            self._link.send(Prepared(message.attempt, port))

    def _run(self, message: Begin) -> None:
        self._events.replace_fifo(ControlFifo(self._run_dir.control_of(message.plan.node)))
        plan = AttemptPlan(
            spec=self._spec,
            number=message.attempt,
            world_size=message.plan.world_size(),
            gpus=self._gpus,
            environment={**message.environment, NODE: str(message.plan.node)},
            warm=message.warm,
            deadline=None,
            log_bytes=message.log_bytes,
            requested_stop=lambda events: self._note_signals(events.signals),
            node=message.plan,
            hosts=message.hosts,
        )
        attempt = NodeAttempt(plan, self._run_dir, self._link, self._events, self._launcher)
        attempt.receive(self._inbox)
        self._inbox.clear()
        result = attempt.run()
        attempt.report(result, self._gpu_memory.wait_released({rank.pid for rank in result.ranks.values()}))
        self._link.attend(self._inbox.append)


def main(run_dir: RunDir, launch: int, host: str, source: str | None = None) -> int:
    """Keep this node's ranks until the leading keeper ends, or lets this one go."""
    set_process_name("rekindle-node")
    set_child_subreaper()
    forbid_core_dumps()
    is_over, tmp = False, None
    try:
        tmp = make_private_tmp()
        read_secrets()
        is_over = _keep(run_dir, launch, host, source)
    except (OSError, ValueError, UnusableError, SecretError, LeaderLostError, ImportError) as error:
        _log(f"{sys.executable}: {error}" if isinstance(error, ImportError) else str(error))
        return 1
    finally:
        kill_all(partial(descendants, os.getpid()), reap_children)
        if is_over:
            shutil.rmtree(run_dir.memory, ignore_errors=True)
        if is_over and tmp is not None:
            shutil.rmtree(tmp, ignore_errors=True)
    return 0


def _keep(run_dir: RunDir, launch: int, host: str, source: str | None) -> bool:
    leader = _find_leader(run_dir, launch)
    os.chdir(run_dir.code)
    kill_all(partial(orphans_of, run_dir.root, host), reap_children)
    events = EventLoop()
    proof = HomeProof(run_dir.launch(launch).proof(host), events.close)
    spec = read_record(run_dir.spec, JobSpec)
    if spec is None:
        raise UnusableError(f"{run_dir.spec} cannot be read here")
    if spec.warm:
        for failure in preload(spec, run_dir.code):
            _log(f"not preloaded on {host}: {failure}")
    with events.signals(signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        versions = own_versions()
        hello = Hello(
            leader.secret, host, secrets.token_hex(8), versions=versions, written=proof.written, clock=time.time()
        )
        link = NodeLink(leader, hello, proof, events, source)
        deadline = time.monotonic() + _WELCOME_TIMEOUT
        keeper = NodeKeeper(run_dir, spec, link, events)
        while not link.is_welcome:
            events.wait(1.0)
            if time.monotonic() > deadline:
                raise UnusableError("the leading keeper has not answered")
        return keeper.serve()


def _find_leader(run_dir: RunDir, launch: int) -> Leader:
    """A file that another machine has just written may be visible here only after a while."""
    deadline = time.monotonic() + _LEADER_TIMEOUT
    while (leader := read_record(run_dir.launch(launch).leader, Leader)) is None:
        if time.monotonic() > deadline:
            raise UnusableError(
                f"{run_dir.launch(launch).leader} cannot be read: is {run_dir.root} on a shared file system?"
            )
        time.sleep(0.1)
    return leader


def _log(message: str) -> None:
    with suppress(OSError):
        print(message, file=sys.stderr, flush=True)  # noqa: T201  # stderr ends in the log of the launch


if __name__ == "__main__":
    exit_code = main(RunDir(Path(sys.argv[1])), int(sys.argv[2]), *sys.argv[3:5])
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(exit_code)  # to finalize an interpreter that has imported torch takes seconds on a busy machine
