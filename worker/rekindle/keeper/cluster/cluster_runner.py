"""Attempts on the nodes of an allocation: as many as answer, chosen again for each attempt."""

import time

from rekindle.contract.job import JobSpec, RunIntent
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.attempt.plan import AttemptPlan
from rekindle.keeper.attempt_result import AttemptResult, Ending
from rekindle.keeper.buffered_journal import BufferedJournal
from rekindle.keeper.cluster.cluster_attempt import ClusterAttempt
from rekindle.keeper.cluster.nodes import START_TIMEOUT, Node, Nodes
from rekindle.keeper.cluster.ownership import LaunchOwner
from rekindle.keeper.cluster.starters import PROLOGUE_FAILED
from rekindle.keeper.cluster.versions import difference
from rekindle.keeper.event_loop import EventLoop, Events
from rekindle.keeper.runner import RequestedStop, World

INTERVAL = 0.5  # seconds
SETTLE_TIMEOUT = 60.0  # seconds that the first attempt waits for the rest once enough nodes answer
REJOIN_TIMEOUT = 120.0  # seconds for a keeper that has ended to be replaced: to wait in Slurm's queue takes longer
CUT_OFF_TIMEOUT = 20.0  # seconds for a node that was cut off to answer again


class TooFewNodesError(Exception):
    """Too few nodes of the allocation are left: the job needs another one."""


class ClusterRunner:
    """Of one launch."""

    def __init__(self, run_dir: RunDir, spec: JobSpec, events: EventLoop, nodes: Nodes, owner: LaunchOwner) -> None:
        self._run_dir, self._spec, self._events = run_dir, spec, events
        self._nodes, self._owner = nodes, owner
        self._chosen: list[Node] = []
        self._start_error: str | None = None  # that no further attempt can cure
        self._has_begun = False  # an attempt of this launch

    @property
    def stamp(self) -> dict[str, int]:
        return self._owner.stamp

    def check(self) -> None:
        self._owner.check()

    def begin(self) -> None:
        """The keepers of the nodes end what earlier ones have left there."""
        self._nodes.start_missing()

    def change_devices(self, intent: RunIntent) -> None:
        """Slurm gives the devices; ``intent`` names none."""

    def find_world(self, requested_stop: RequestedStop) -> World | None:
        """Raises TooFewNodesError."""
        self._start_error = None
        self._nodes.dismiss_terminated()
        began, events = time.monotonic(), Events()
        while requested_stop(events) is None:
            self._nodes.start_missing()
            self._chosen = self._nodes.answering()[: self._spec.nodes]
            if self._is_decided(time.monotonic() - began):
                return self._world()
            events = self._events.wait(INTERVAL)
        return None

    def _is_decided(self, waited: float) -> bool:
        """Raises TooFewNodesError."""
        found = len(self._chosen)
        if found == self._spec.nodes:
            self._check_versions()
            return True
        is_enough, settled = found >= self._spec.min_nodes, self._nodes.is_settled()
        if is_enough and (self._has_begun or settled or self._waited_for_rest(waited)):
            self._check_versions()
            return True
        if is_enough or not (settled or waited > self._timeout()):
            return False
        if not self._has_begun:
            self._nodes.give_up_silent()
        if failed := [each for each in self._nodes.missing().values() if each.startswith(PROLOGUE_FAILED)]:
            self._start_error = "The job cannot start: " + "; ".join(failed)
            return True
        self._owner.beat()  # the next launch must know
        missing = "; ".join(f"{host}: {reason}" for host, reason in self._nodes.missing().items())
        raise TooFewNodesError(f"{found} of at least {self._spec.min_nodes} nodes can be used ({missing})")

    def _timeout(self) -> float:
        if not self._has_begun:
            return START_TIMEOUT
        return REJOIN_TIMEOUT if self._nodes.may_rejoin() else CUT_OFF_TIMEOUT

    def _waited_for_rest(self, waited: float) -> bool:
        return waited > START_TIMEOUT or time.monotonic() > self._nodes.latest_answer + SETTLE_TIMEOUT

    def _check_versions(self) -> None:
        self._start_error = difference({node.host: node.versions for node in self._chosen})

    def _world(self) -> World:
        count = len(self._chosen) if self._start_error is None else self._spec.min_nodes
        return World(count * self._spec.ranks_per_node, hosts=[node.host for node in self._chosen])

    def run(self, plan: AttemptPlan, journal: BufferedJournal) -> AttemptResult:
        if self._start_error is not None:
            ended = AttemptResult(plan.number, plan.world_size, Ending.AGENT_ENDED, start_error=self._start_error)
            ended.start_is_retryable = False
            return ended
        self._has_begun = True
        self._owner.beat()  # with the nodes that it does without
        return ClusterAttempt(plan, self._run_dir, journal, self._events, self._nodes, self._chosen).run()

    def close(self, *, is_over: bool) -> None:
        self._nodes.close(is_over=is_over)
