"""The torchrun agent of one attempt: stock torchrun, which also reports to the keeper how each rank ended.

torchrun reports only the first failing rank, and only when it has stopped the others. The kernel reports at once: on
SIGCHLD the status of a dead rank is read without reaping it (WNOWAIT), so torchrun notices nothing. Where torchrun
waits for a rank and so reaps it before that, the status that it received is reported.

Its module path is fixed: a keeper that outlives an upgrade starts cold agents of the new version by it.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from rekindle.contract.environment import NODE_PLAN, USED_CUDA, RankEnv
from rekindle.contract.processes import die_with_parent, open_descriptors, set_process_name, used_up_cpu_limit
from rekindle.contract.run_dir.control_messages import ControlMessage, MessageType, notify
from rekindle.keeper.torchrun import preload
from rekindle.keeper.torchrun.node_plan import NodePlan

_looked_for = set[int]()  # aborted ranks
_LOOK_SECONDS = 3.0
"""Time for the keeper to sample the other ranks when gloo or a watchdog has aborted one: another has caused that."""


def run_warm(argv: list[str], latch: int, *, cluster: bool = False, standby: Path | None = None) -> None:
    """Run torchrun up to the start of its ranks, and wait there until the pipe ``latch`` brings its attempt.

    An agent of a ``cluster`` waits before its rendezvous. With ``standby``, a directory for torchrun's files, the ranks
    start at once and wait by themselves.
    """
    from torch.distributed.elastic.multiprocessing import api

    from rekindle.keeper.torchrun.latch import LatchedLogs, StandbyLogs

    api._wrap = _without_waiting(api._wrap)
    if standby is not None:
        _run_and_exit(argv, StandbyLogs(latch, str(standby)))
    logs = LatchedLogs(latch)

    def await_plan() -> NodePlan:
        logs.wait()
        return read_node_plan()

    _run_and_exit(argv, logs, await_plan if cluster else None)


def _without_waiting(wrap: Callable[..., None]) -> Callable[..., None]:
    """Change ``wrap``, which runs a rank in a fork of the agent and lets it wait at its end until all have ended.

    Like a rank in a process of its own, it must end then: its connections close, and ranks that wait for it for ever
    fail at once. torchrun has read its result before that, or reads it from the pipe.
    """

    def wrap_and_end(local_rank: int, *arguments: Any) -> None:
        _, _, environments, _, _, results, *_ = arguments
        replace_where_cuda_is_lost(environments[local_rank], lambda: results[local_rank].put(None))
        wrap(local_rank, *(_Set() if isinstance(each, Event) else each for each in arguments))

    return wrap_and_end


def replace_where_cuda_is_lost(environment: dict[str, str], report: Callable[[], None] = lambda: None) -> None:
    """Continue as a fresh interpreter in a rank just forked from a parent that has used CUDA, which a fork cannot use.

    ``environment`` is added to its own. torchrun waits for a result of each rank and for its end: ``report`` sends the
    result before, since only this process can. All descriptors stay open, as one of them shows torchrun the end.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "" or not preload.lacks_cuda():  # not set: all are visible
        return
    report()
    for fd in open_descriptors():
        os.set_inheritable(fd, True)
    module = preload.used_cuda_at_import or "something that it had imported"
    os.environ.update(environment, PYTHONSAFEPATH="1")
    os.environ[USED_CUDA] = module
    os.execv(sys.executable, [sys.executable, "-u", "-m", "rekindle.rank"])  # noqa: S606  # no shell is wanted


class _Set:
    """An event that has happened."""

    def wait(self) -> bool:
        return True


def run_cold(argv: list[str]) -> None:
    """Run torchrun in this fresh interpreter; where the environment has a ``NodePlan``, as an agent of a cluster."""
    _run_and_exit(argv, await_plan=read_node_plan if NODE_PLAN in os.environ else None)


def read_node_plan() -> NodePlan:
    """Read the plan of this agent's attempt from its environment; the ranks do not inherit it."""
    return NodePlan.from_json(json.loads(os.environ.pop(NODE_PLAN)))


def _run_and_exit(argv: list[str], logs_specs: Any = None, await_plan: Callable[[], NodePlan] | None = None) -> None:
    """Run torchrun and exit as it does; ``logs_specs`` replaces its own."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch
    from torch.distributed.run import config_from_args, get_args_parser

    from rekindle.keeper.torchrun.rendezvous import UnnumberedLogs, configure_rendezvous

    parsed = get_args_parser().parse_args(argv)
    configure_rendezvous(parsed, await_plan)
    with without_accelerators():
        config, entrypoint, arguments = config_from_args(parsed)
    config.logs_specs = logs_specs or config.logs_specs
    if await_plan is not None and config.logs_specs is not None:
        config.logs_specs = UnnumberedLogs(config.logs_specs)

    signal.signal(signal.SIGCHLD, lambda *_: _report_dead_ranks())
    _report_reaped_ranks()
    code = 0
    try:
        elastic_launch(config, entrypoint)(*arguments)
    except ChildFailedError as error:
        for failure in error.failures.values():
            report_exit(failure.pid, failure.exitcode)
        code = 1
        with suppress(OSError):  # of a full disk
            print(error, file=sys.stderr)  # noqa: T201  # stderr is the agent's log
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


@contextmanager
def without_accelerators() -> Iterator[None]:
    """Let torch find no accelerator meanwhile: ``LaunchConfig`` asks for one, to choose NUMA options of its own.

    The driver's answer would make CUDA unusable in every process that is forked from this one, as warm ranks are
    (``torch.cuda._is_in_bad_fork``). Nothing is lost by it: ``get_default_numa_options`` of torch 2.11 to 2.15 is None.
    """
    import torch

    asked: list[Any] = [torch.cuda, torch.accelerator]  # up to torch 2.11, and since
    before = [module.is_available for module in asked]
    for module in asked:
        module.is_available = lambda: False
    try:
        yield
    finally:
        for module, function in zip(asked, before, strict=True):
            module.is_available = function


def _report_dead_ranks() -> None:
    aborted = set[int]()
    for pid in map(int, Path("/proc/thread-self/children").read_text().split()):
        try:
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            continue
        if ended is not None:
            by_signal = ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
            report_exit(pid, -ended.si_status if by_signal else ended.si_status)
            if by_signal and ended.si_status == signal.SIGABRT:
                aborted.add(pid)
    if new := aborted - _looked_for:
        _looked_for.update(new)
        time.sleep(_LOOK_SECONDS)  # before torchrun stops the others


def _report_reaped_ranks() -> None:
    """Report what ``os.waitpid`` returns, from now on and in this process only."""
    waitpid = os.waitpid

    def waitpid_and_report(pid: int, options: int, /) -> tuple[int, int]:
        reaped, status = waitpid(pid, options)
        if reaped:
            report_exit(reaped, os.waitstatus_to_exitcode(status))
        return reaped, status

    os.waitpid = waitpid_and_report
    os.register_at_fork(after_in_child=lambda: setattr(os, "waitpid", waitpid))


def report_exit(pid: int, exit_code: int) -> None:
    """Send the keeper how the rank ``pid`` ended; a negative ``exit_code`` is that of a signal."""
    env = RankEnv.read(os.environ)
    if env.run_dir is not None:
        code, number = (exit_code, None) if exit_code >= 0 else (None, -exit_code)
        limit = used_up_cpu_limit(pid) if number == signal.SIGKILL else None
        reason = None if limit is None else f"it had used up its limit of processor time, {limit} s"
        exited = ControlMessage(
            MessageType.RANK_EXITED, env.attempt, pid=pid, exit_code=code, signal=number, reason=reason
        )
        notify(env.run_dir, exited, env.node)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    set_process_name("torchrun")
    run_cold(sys.argv[2:])
