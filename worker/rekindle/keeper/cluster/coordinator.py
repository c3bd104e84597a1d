"""The coordinator: the keeper of a job on a cluster, which decides about attempts on the nodes of an allocation.

An attempt runs on as many nodes as answer, chosen again each time, for as long as no later launch owns the job.
"""

import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from rekindle.contract.files import complete_lines, why_unwritable, write_json
from rekindle.contract.job import JobSpec, RunIntent
from rekindle.contract.run_dir.control_messages import ControlMessage, parse_message
from rekindle.contract.run_dir.coordinator_records import Coordinator, CoordinatorBeat
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.safe_open import open_regular, regular_size
from rekindle.keeper.attempt.plan import AttemptPlan
from rekindle.keeper.attempt_result import AttemptResult, Ending
from rekindle.keeper.attempt_runner import RequestedStop, Resources
from rekindle.keeper.buffered_journal import (
    BufferedJournal,
    SupersededError,
    UnwritableError,
    follow_clock_of,
    journal_time,
)
from rekindle.keeper.cluster.cluster_attempt import ClusterAttempt
from rekindle.keeper.cluster.messages import Versions
from rekindle.keeper.cluster.node_start import PROLOGUE_FAILED
from rekindle.keeper.cluster.nodes import START_TIMEOUT, Node, Nodes, Starter
from rekindle.keeper.cluster.slurm_job import LIMIT_INTERVAL, Limit, TimeLimit, latest_stop_seconds
from rekindle.keeper.event_loop import EventLoop, Events
from rekindle.keeper.keeper_environment import write_environment_info
from rekindle.keeper.supervisor import Keeper

BEAT_INTERVAL = 5.0  # seconds; by its beats the server sees that the coordinator lives
_REQUESTS_INTERVAL = 1.0  # seconds
_INTERVAL = 0.5  # seconds between two looks at which nodes answer
_SETTLE_TIMEOUT = 60.0  # seconds that the first attempt waits for the rest once enough nodes answer
_REJOIN_TIMEOUT = 120.0  # seconds for a keeper that has ended to be replaced: to wait in Slurm's queue takes longer
_CUT_OFF_TIMEOUT = 20.0  # seconds for a node that was cut off to answer again


class TooFewNodesError(Exception):
    """Too few nodes of the allocation are left: the job needs another one."""


def coordinate(
    run_dir: RunDir,
    owner: "LaunchOwner",
    hosts: Sequence[str],
    address: str,
    starter: Starter,
    ask_limit: Callable[[], Limit | None] = lambda: None,
) -> None:
    """Run the job on ``hosts`` until it has ended, or another launch has to follow.

    ``ask_limit``: see ``TimeLimit``. Raises SupersededError, TooFewNodesError, UnreadableError, UnwritableError and
    OSError.
    """
    owner.check()
    events = EventLoop()
    make_runner = partial(ClusterRunner, owner=owner, hosts=hosts, address=address, starter=starter)
    keeper = Keeper(run_dir, events, make_runner, owner.check, launch=owner.number)
    requests = RequestFile(run_dir.requests)
    limit = TimeLimit(ask_limit, lambda: latest_stop_seconds(run_dir.journal), keeper.leave)
    events.every(LIMIT_INTERVAL, limit.check)
    if owner.nodes is not None:  # at a preemption Slurm sends SIGTERM to them, and none to this keeper
        owner.nodes.on_end = lambda: keeper.leave("Slurm sent SIGTERM to all its nodes.")
    events.every(BEAT_INTERVAL, owner.beat)
    events.every(_REQUESTS_INTERVAL, lambda: events.add(requests.read()))
    if keeper.begin():
        write_environment_info(run_dir, keeper.run)
        keeper.supervise()


def own_address(hosts: Sequence[str]) -> str:
    """The address of this machine by which the other ``hosts`` are reached; no packet is sent. Raises OSError."""
    others = [host for host in hosts if host.partition(".")[0] != socket.gethostname().partition(".")[0]]
    for host in others:
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            return str(probe.getsockname()[0])
    return "127.0.0.1" if not others else socket.gethostbyname(socket.gethostname())


class RequestFile:
    """What the server appends to ``requests.jsonl`` from now on: a FIFO does not reach across machines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = regular_size(path)

    def read(self) -> list[ControlMessage]:
        """New messages. The file is opened each time: only then does a network file system ask its server."""
        messages: list[ControlMessage] = []
        with suppress(OSError), open_regular(self._path) as file:
            for offset, line in complete_lines(file, self._offset):
                self._offset = offset
                if (message := parse_message(line)) is not None:
                    messages.append(message)
        return messages


class LaunchOwner:
    """The coordinator's claim to the job: that of the latest launch, and of its latest restart by Slurm, counts.

    No lock shows this: locks do not reach everywhere.
    """

    def __init__(self, run_dir: RunDir, number: int, restart: int) -> None:
        """``number`` is that of the launch, which Slurm has requeued ``restart`` times so far."""
        self.number, self.restart = number, restart
        self._run_dir, self._files = run_dir, run_dir.launch(number)
        self._beats = 0
        self.nodes: Nodes | None = None

    def check(self) -> None:
        """Raise SupersededError where another coordinator has the job now.

        Both files are opened each time: only then does a network file system ask its server for them.
        """
        intent = read_record(self._run_dir.intent, RunIntent)
        if intent is not None and intent.launch > self.number:
            raise SupersededError(f"launch {intent.launch} has taken over from launch {self.number}")
        published = read_record(self._files.leader, Coordinator)
        if published is not None and published.restart > self.restart:
            raise SupersededError(f"restart {published.restart} of launch {self.number} has taken over")

    def publish(self, own: Coordinator, nodes: Nodes) -> None:
        """Let the nodes' keepers find it. Raises SupersededError, OSError."""
        self.check()
        self.nodes = nodes
        write_json(self._files.leader, own.to_json())
        follow_clock_of(self._files.leader)
        self.beat()

    def beat(self) -> None:
        """Show that this keeper lives, if it may. Raises SupersededError, UnwritableError; a full disk costs a beat."""
        self.check()
        self._beats += 1
        nodes = {} if self.nodes is None else self.nodes.report()
        beat = CoordinatorBeat(self._beats, self.restart, journal_time(), **nodes)
        try:
            write_json(self._files.beat, beat.to_json(), durable=False)
        except OSError as error:
            if (reason := why_unwritable(error, self._files.root)) is not None:
                raise UnwritableError(reason) from error


class ClusterRunner:
    """Runs the attempts of one launch; see ``Runner``."""

    def __init__(
        self,
        run_dir: RunDir,
        spec: JobSpec,
        intent: RunIntent,
        events: EventLoop,
        *,
        owner: LaunchOwner,
        hosts: Sequence[str],
        address: str,
        starter: Starter,
    ) -> None:
        """Listen at ``address`` for the keepers of the ``hosts``, which learn of it. Raises as ``publish``."""
        self._run_dir, self._spec, self._events, self._owner = run_dir, spec, events, owner
        secret, launch = secrets.token_hex(32), run_dir.launch(owner.number)
        self._nodes = Nodes(hosts, starter, address, secret, events, intent.host_timeout, launch)
        own = socket.gethostname(), os.getpid()
        owner.publish(Coordinator(address, self._nodes.port, secret, *own, owner.restart, list(hosts)), self._nodes)
        self._chosen: list[Node] = []
        self._start_error: str | None = None  # that no further attempt can cure
        self._has_begun = False  # an attempt of this launch

    def begin(self) -> None:
        """Start the keepers of the nodes, which end what earlier ones have left there."""
        self._nodes.start_missing()

    def change_devices(self, intent: RunIntent) -> None:
        """Do nothing: Slurm gives the devices, and ``intent`` names none."""

    def find_resources(self, requested_stop: RequestedStop) -> Resources | None:
        """Choose the nodes of the next attempt; None where a stop is requested first. Raises TooFewNodesError."""
        self._start_error = None
        self._nodes.dismiss_terminated()
        began, events = time.monotonic(), Events()
        while requested_stop(events) is None:
            self._nodes.start_missing()
            self._chosen = self._nodes.answering()[: self._spec.nodes]
            if self._is_decided(time.monotonic() - began):
                count = len(self._chosen) if self._start_error is None else self._spec.min_nodes
                return Resources(count * self._spec.ranks_per_node, hosts=[node.host for node in self._chosen])
            events = self._events.wait(_INTERVAL)
        return None

    def _is_decided(self, waited: float) -> bool:
        """True where an attempt can begin on the nodes chosen so far, or never can. Raises TooFewNodesError."""
        found = len(self._chosen)
        is_enough, settled = found >= self._spec.min_nodes, self._nodes.is_settled()
        is_all = found == self._spec.nodes
        if is_all or (is_enough and (self._has_begun or settled or self._waited_for_rest(waited))):
            self._start_error = difference({node.host: node.versions for node in self._chosen})
            return True
        if is_enough or not (settled or waited > self._timeout()):
            return False
        if not self._has_begun:
            self._nodes.give_up_silent()
        missing = self._nodes.missing()
        if failed := [each for each in missing.values() if each.startswith(PROLOGUE_FAILED)]:
            self._start_error = "The job cannot start: " + "; ".join(failed)
            return True
        self._owner.beat()  # the next launch must know
        reasons = "; ".join(f"{host}: {reason}" for host, reason in missing.items())
        raise TooFewNodesError(f"{found} of at least {self._spec.min_nodes} nodes can be used ({reasons})")

    def _timeout(self) -> float:
        if not self._has_begun:
            return START_TIMEOUT
        return _REJOIN_TIMEOUT if self._nodes.may_rejoin() else _CUT_OFF_TIMEOUT

    def _waited_for_rest(self, waited: float) -> bool:
        return waited > START_TIMEOUT or time.monotonic() > self._nodes.latest_answer + _SETTLE_TIMEOUT

    def run(self, plan: AttemptPlan, journal: BufferedJournal) -> AttemptResult:
        if self._start_error is not None:
            return AttemptResult(
                plan.number,
                plan.world_size,
                Ending.AGENT_ENDED,
                start_error=self._start_error,
                start_is_retryable=False,
            )
        self._has_begun = True
        self._owner.beat()  # with the nodes that it does without
        return ClusterAttempt(plan, self._run_dir, journal, self._events, self._nodes, self._chosen).run()

    def close(self, *, is_over: bool) -> None:
        self._nodes.close(is_over=is_over)


def difference(by_host: Mapping[str, Versions]) -> str | None:
    """The sentence about the first two nodes whose versions differ; None where all are the same."""
    hosts = list(by_host)
    for host in hosts[1:]:
        if by_host[host] != by_host[hosts[0]]:
            return (
                f"The nodes have different versions: {hosts[0]} has {by_host[hosts[0]]}, {host} has {by_host[host]}. "
                "Install the same on all nodes, or name a Python on the shared file system with --python."
            )
    return None
