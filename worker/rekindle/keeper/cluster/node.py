"""``python -P -m rekindle.keeper.cluster.node RUN_DIR LAUNCH HOST [ADDRESS]``: the keeper of one node.

Started by the coordinator, one per node, through ``node_start``. Like the keeper of a job on one machine it has torch
imported and forks the agents; it decides nothing, and writes nothing of the job but what concerns its own ranks.
"""

import os
import platform
import secrets
import shutil
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

import rekindle
from rekindle.contract.environment import NODE
from rekindle.contract.files import source_digest
from rekindle.contract.job import JobSpec
from rekindle.contract.run_dir.attempt_samples import UsageSample
from rekindle.contract.run_dir.control_messages import ControlMessage
from rekindle.contract.run_dir.coordinator_records import Coordinator
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.attempt.plan import AttemptPlan
from rekindle.keeper.attempt.running_attempt import RunningAttempt
from rekindle.keeper.attempt_result import Ending
from rekindle.keeper.cluster import messages
from rekindle.keeper.cluster.connections import CoordinatorLostError, HomeProof, NodeLink
from rekindle.keeper.diagnosis import has_timed_out, root_cause
from rekindle.keeper.event_loop import ControlFifo, EventLoop
from rekindle.keeper.keeper_environment import SecretError, keep_job, log
from rekindle.keeper.observers.usage_log import GpuMemory, UsageLog
from rekindle.keeper.rank_processes.process_tree import kill_all, orphans_of, reap_children
from rekindle.keeper.torchrun.agent_launcher import AgentLauncher
from rekindle.keeper.torchrun.preload import preload
from rekindle.keeper.torchrun.store_server import start_store_server

_WELCOME_TIMEOUT = 60.0  # seconds
_COORDINATOR_TIMEOUT = 30.0  # seconds for leader.json to be seen here
_IDLE = 60.0  # seconds; nothing is due then, and events end the wait
_INTERVAL = 1.0  # seconds between two looks at what the coordinator has decided


class UnusableError(Exception):
    """This node cannot run ranks of the job; the message says why."""


class NodeKeeper:
    """Runs what the coordinator asks for, one attempt after another."""

    def __init__(self, run_dir: RunDir, spec: JobSpec, link: NodeLink, events: EventLoop) -> None:
        self._run_dir, self._spec, self._link, self._events = run_dir, spec, link, events
        self._launcher = AgentLauncher(run_dir, spec.launch, spec.ranks_per_node, events.close, cluster=True)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "") if spec.device_kind == "cuda" else ""
        self._gpus = [name for name in visible.split(",") if name]  # as Slurm has numbered them
        self._gpu_memory = GpuMemory(self._gpus)
        self._inbox: list[messages.Message] = []
        self._terminated = False
        link.attend(self._inbox.append)

    def serve(self) -> bool:
        """Serve until the coordinator lets this keeper go; True if the job has ended. Raises CoordinatorLostError."""
        try:
            while True:
                events = self._events.wait(_IDLE)
                self._note_signals(events.signals)
                while self._inbox:
                    message = self._inbox.pop(0)
                    if isinstance(message, messages.Leave):
                        return message.is_over
                    if isinstance(message, messages.Prepare):
                        self._prepare(message)
                    elif isinstance(message, messages.Begin):
                        self._run(message)
        finally:
            self._launcher.discard()

    def _note_signals(self, signals: list[int]) -> None:
        if signals and not self._terminated:
            self._terminated = True
            self._link.send(messages.Terminated())

    def _prepare(self, message: messages.Prepare) -> None:
        """Serve the store of the attempt's ranks; it ends with the attempt's other processes."""
        try:
            port = start_store_server(message.address, message.addresses, message.secret)
        except Exception as error:  # noqa: BLE001  # whatever keeps this node from serving is the coordinator's to report
            reason = f"the store of the ranks cannot be served: {error}"
            self._link.send(messages.Prepared(message.attempt, error=reason))
        else:
            self._link.send(messages.Prepared(message.attempt, port))

    def _run(self, message: messages.Begin) -> None:
        self._events.replace_fifo(ControlFifo(self._run_dir.control_of(message.plan.node)))
        plan = AttemptPlan(
            spec=self._spec,
            number=message.attempt,
            world_size=message.plan.world_size(),
            gpus=self._gpus,
            environment={**message.environment, NODE: str(message.plan.node)},
            deadline=None,
            log_bytes=message.log_bytes,
            requested_stop=lambda events: self._note_signals(events.signals),
            node=message.plan,
        )
        attempt = NodeAttempt(plan, self._run_dir, self._link, self._events, self._launcher)
        for each in self._inbox:  # what came together with ``message``, such as one to end the attempt at once
            attempt.receive(each)
        self._inbox.clear()
        result = attempt.run()
        ranks = list(result.ranks.values())
        result.gpu_memory_held = self._gpu_memory.wait_released({rank.pid for rank in ranks})
        self._link.send(messages.NodeResult(plan.number, ranks, replace(result, ranks={})))
        self._link.attend(self._inbox.append)


class NodeAttempt(RunningAttempt):
    """An attempt on one of its nodes: as on one machine, but it ends only when, and as, the coordinator says.

    Call ``run`` once.
    """

    def __init__(
        self, plan: AttemptPlan, run_dir: RunDir, link: NodeLink, events: EventLoop, launcher: AgentLauncher
    ) -> None:
        super().__init__(plan, run_dir, link, events, launcher)
        self._link, self._number = link, plan.number
        self._usage = UsageLog(self._dir.usage, plan.gpus, write=self._send_usage)
        self._agreed: Ending | None = None
        self._proposed: Ending | None = None
        self._observe: messages.Observe | None = None
        self._discount = 0.0  # seconds
        self._may_kill = self._may_finish = False
        self._others: list[int] = []
        self._requests: list[ControlMessage] = []
        self._was_stalled = False
        link.attend(self.receive)

    # --- what the coordinator says

    def receive(self, message: messages.Message) -> None:
        """Note what to do: this is called while events are awaited."""
        if isinstance(message, messages.Leave):
            raise CoordinatorLostError("the coordinator has left the job")
        if isinstance(message, messages.UserRequest):
            self._requests.append(message.message)
        if not isinstance(message, messages.AttemptMessage) or message.attempt != self._number:
            return
        match message:
            case messages.End():
                self._agreed = message.ending
            case messages.Kill():
                self._may_kill = True
            case messages.Finish():
                self._may_finish = True
            case messages.Observe():
                self._observe = message
            case messages.Discount():
                self._discount += message.seconds
            case messages.AllRunning():
                self._others = message.others

    def _handle_events(self, seconds: float) -> None:
        super()._handle_events(seconds)
        requests, self._requests = self._requests, []
        for request in requests:
            self._processes.handle_message(request)

    def _answer(self) -> None:
        """Report where the ranks are, if that was asked."""
        if (asked := self._observe) is not None:
            self._observe = None
            match asked.sampling:
                case messages.Sampling.LATEST:
                    seen = self._detector.observe_stall(self._ranks)
                case messages.Sampling.HANG:
                    seen = self._detector.observe_hang(self._ranks, super()._handle_events)
                case messages.Sampling.FAILURE:
                    seen = self._detector.observe_failure(self._ranks, super()._handle_events)
            self._link.send(messages.Observed(self._number, seen))

    # --- while the ranks run

    def _ending(self) -> Ending | None:
        self._answer()
        if self._agreed is None and (proposed := super()._ending()) is not self._proposed and proposed is not None:
            self._proposed = proposed
            self._link.send(messages.Proposal(self._number, proposed))
        return self._agreed

    def _find_hang(self) -> None:
        if self._discount:
            self._detector.discount(self._discount)
            self._discount = 0.0
        if self._detector.due_in() <= 0:
            stalled = self._detector.stalled(self._ranks)
            shown, left = self._detector.stall_times()
            is_stalled = stalled is not None or shown is not None
            if is_stalled or self._was_stalled:
                self._link.send(messages.NodeStalled(self._number, stalled, self._detector.is_stopped, shown, left))
            self._was_stalled = is_stalled

    def _other_ranks(self) -> list[int]:
        return [*super()._other_ranks(), *self._others]

    def _send_usage(self, _: Path, sample: UsageSample) -> None:
        self._link.send(messages.UsageTaken(self._number, sample))

    # --- at the end

    def _shut_down(self, ending: Ending) -> Ending:
        if ending is not Ending.DONE and not ending.is_stop:
            ending = self._await_kill(ending)
        if ending is Ending.DONE:
            self._shutdown.await_exit()
        elif ending.is_stop:
            self._shutdown.stop_ranks(ending)
        else:
            self._kill_ranks(ending)
        self._link.send(messages.StoreReleased(self._number))
        while not self._may_finish:
            self._answer()
            self._handle_events(_INTERVAL)
        return ending

    def _await_kill(self, ending: Ending) -> Ending:
        """Report what is known of the cause, until the coordinator knows enough; return what it then says."""
        reported: messages.RanksEnded | None = None
        while not self._may_kill and self._agreed is ending:
            self._answer()
            now = messages.RanksEnded(self._number, self._cause_is_known(), self._shutdown.ended_by_sigterm())
            if (now.cause_known or self._ranks.all_ended()) and now != reported:
                self._link.send(now)
                reported = now
            self._handle_events(_INTERVAL)
        return self._agreed or ending

    def _cause_is_known(self) -> bool:
        """True for a failure on this node that needs no look at the others."""
        cause = root_cause(self._ranks)
        needs_others = cause is not None and (self._detector.is_aborted_by_gloo(cause) or has_timed_out(cause))
        return self._ranks.root_cause_is_known() and not needs_others

    def _kill_ranks(self, ending: Ending) -> None:
        """Kill all ranks but the one that failed first, whose exit functions may still run."""
        cause = root_cause(self._ranks) if ending is Ending.RANK_FAILED else None
        if cause is None:
            self._ranks.kill_unfinished()
        else:
            self._shutdown.kill_others(cause)

    def _final_ending(self, ending: Ending) -> Ending:
        """Leave it to the coordinator, which makes one of the nodes' endings."""
        return ending


def main(run_dir: RunDir, launch: int, host: str, source: str | None = None) -> int:
    """Keep this node's ranks until the coordinator ends, or lets this keeper go."""
    try:
        if keep_job("rekindle-node", partial(_keep, run_dir, launch, host, source)):
            shutil.rmtree(run_dir.memory, ignore_errors=True)
    except (OSError, ValueError, UnusableError, SecretError, CoordinatorLostError, ImportError) as error:
        log(f"{sys.executable}: {error}" if isinstance(error, ImportError) else str(error))
        return 1
    return 0


def _keep(run_dir: RunDir, launch: int, host: str, source: str | None) -> bool:
    coordinator = _find_coordinator(run_dir, launch)
    os.chdir(run_dir.code)
    kill_all(partial(orphans_of, run_dir.root, host), reap_children)
    events = EventLoop()
    proof = HomeProof(run_dir.launch(launch).proof(host), events.close)
    spec = read_record(run_dir.spec, JobSpec)
    if spec is None:
        raise UnusableError(f"{run_dir.spec} cannot be read here")
    if spec.warm:
        for failure in preload(spec, run_dir.code):
            log(f"not preloaded on {host}: {failure}")
    with events.signals(signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        digest = source_digest(Path(rekindle.__file__).parent)
        versions = messages.Versions(digest, version("torch"), platform.python_version())
        hello = messages.NodeHello(
            coordinator.secret, host, secrets.token_hex(8), versions=versions, written=proof.written, clock=time.time()
        )
        link = NodeLink(coordinator, hello, proof, events, source)
        deadline = time.monotonic() + _WELCOME_TIMEOUT
        keeper = NodeKeeper(run_dir, spec, link, events)
        while not link.is_welcome:
            events.wait(1.0)
            if time.monotonic() > deadline:
                raise UnusableError("the coordinator has not answered")
        return keeper.serve()


def _find_coordinator(run_dir: RunDir, launch: int) -> Coordinator:
    """Wait for its file: what another machine has just written may be visible here only after a while."""
    deadline = time.monotonic() + _COORDINATOR_TIMEOUT
    while (found := read_record(run_dir.launch(launch).leader, Coordinator)) is None:
        if time.monotonic() > deadline:
            raise UnusableError(
                f"{run_dir.launch(launch).leader} cannot be read: is {run_dir.root} on a shared file system?"
            )
        time.sleep(0.1)
    return found


if __name__ == "__main__":
    exit_code = main(RunDir(Path(sys.argv[1])), int(sys.argv[2]), *sys.argv[3:5])
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(exit_code)  # to finalize an interpreter that has imported torch takes seconds on a busy machine
