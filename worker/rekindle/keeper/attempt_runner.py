"""Where the attempts of a job run: on this machine, or on the nodes of a cluster."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from rekindle.contract.job import JobSpec, RunIntent
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.attempt.plan import AttemptPlan
from rekindle.keeper.attempt.running_attempt import RunningAttempt
from rekindle.keeper.attempt_result import AttemptResult, Ending
from rekindle.keeper.buffered_journal import BufferedJournal
from rekindle.keeper.event_loop import EventLoop, Events
from rekindle.keeper.observers.usage_log import GpuMemory
from rekindle.keeper.rank_processes.process_tree import kill_all, orphans_of, reap_children
from rekindle.keeper.torchrun.agent_launcher import AgentLauncher

RequestedStop = Callable[[Events], Ending | None]


@dataclass(frozen=True, slots=True)
class Resources:
    """What the next attempt runs on."""

    world_size: int
    devices: list[str] = field(default_factory=list)  # slots of this machine
    gpus: list[str] = field(default_factory=list)  # of this machine, as in CUDA_VISIBLE_DEVICES
    hosts: list[str] = field(default_factory=list)  # of a cluster, in the order of the nodes


class Runner(Protocol):
    """Runs one attempt after another."""

    def begin(self) -> None:
        """End what an earlier keeper has left; call it before anything else."""

    def change_devices(self, intent: RunIntent) -> None:
        """Let the next attempt run on the devices of ``intent``; one may run now."""

    def find_resources(self, requested_stop: RequestedStop) -> Resources | None:
        """Find what the next attempt runs on; None where a stop was requested before."""

    def run(self, plan: AttemptPlan, journal: BufferedJournal) -> AttemptResult:
        """Run the attempt, from its start until no process of it is left."""

    def close(self, *, is_over: bool) -> None:
        """Release everything after the last attempt; ``is_over``: the job has ended, and no other keeper follows."""


MakeRunner = Callable[[RunDir, JobSpec, RunIntent, EventLoop], Runner]


class LocalRunner:
    """Runs attempts on this machine, in processes below the keeper's own."""

    def __init__(self, run_dir: RunDir, spec: JobSpec, intent: RunIntent, events: EventLoop) -> None:
        self._spec, self._run_dir, self._events = spec, run_dir, events
        self._resources = self._resources_of(intent)
        self._launcher = AgentLauncher(run_dir, spec.launch, self._resources.world_size, events.close)
        self._used = (0, [""])  # number of ranks and GPUs for which agents are started
        self._use(self._resources.world_size, self._resources.gpus)

    def _resources_of(self, intent: RunIntent) -> Resources:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "") if self._spec.device_kind == "cuda" else ""
        gpus = [name for name in visible.split(",") if name] if intent.gpus is None else intent.gpus
        return Resources(len(intent.devices) // self._spec.devices_per_rank, intent.devices, gpus)

    def begin(self) -> None:
        left = bool(self._resources.gpus) and bool(orphans_of(self._run_dir.root))
        kill_all(partial(orphans_of, self._run_dir.root), reap_children)
        self._gpu_memory, self._measured = self._gpu_memory_of(self._resources.gpus, settles=left), self._resources.gpus

    def change_devices(self, intent: RunIntent) -> None:
        self._resources = self._resources_of(intent)
        self._use(self._resources.world_size, self._resources.gpus)

    def _use(self, size: int, gpus: list[str]) -> None:
        """Let every agent started from now on have ``size`` ranks on ``gpus``; the keeper itself uses no GPU."""
        if self._used == (size, gpus):
            return
        self._used = size, gpus
        if self._spec.device_kind == "cuda":
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        self._launcher.resize(size)

    def _gpu_memory_of(self, gpus: list[str], *, settles: bool = False) -> GpuMemory:
        return GpuMemory(gpus, shared=self._spec.gpu_share < 1, settles=settles)

    def find_resources(self, requested_stop: RequestedStop) -> Resources | None:
        del requested_stop  # nothing is to be waited for
        return self._resources

    def run(self, plan: AttemptPlan, journal: BufferedJournal) -> AttemptResult:
        self._use(plan.world_size, plan.gpus)  # the intent may have changed since ``find_resources``
        if self._measured != plan.gpus:
            self._gpu_memory, self._measured = self._gpu_memory_of(plan.gpus), plan.gpus
        result = RunningAttempt(plan, self._run_dir, journal, self._events, self._launcher).run()
        result.gpu_memory_held = self._gpu_memory.wait_released({rank.pid for rank in result.ranks.values()})
        return result

    def close(self, *, is_over: bool) -> None:
        del is_over
        self._launcher.discard()
