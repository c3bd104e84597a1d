"""The torchrun agent of one attempt: stock torchrun, which also reports to the keeper how each rank ended.

torchrun reports only the first failing rank, and only when it has stopped the others. The kernel reports at once: on
SIGCHLD the status of a dead rank is read without reaping it (WNOWAIT), so torchrun notices nothing. Where torchrun
waits for a rank and so reaps it before that, the status that it received is reported.

Its module path is fixed: a keeper that outlives an upgrade starts cold agents of the new version by it.
"""

import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from rekindle.contract.environment import RankEnv
from rekindle.contract.processes import die_with_parent, set_process_name
from rekindle.contract.run_dir.control import ControlMessage, MessageType, notify


def run_warm(argv: list[str], latch: int) -> None:
    """Run torchrun up to the start of its ranks, and wait there until the pipe ``latch`` brings its attempt."""
    from torch.distributed.elastic.multiprocessing import api

    from rekindle.keeper.torchrun.latch import LatchedLogs

    api._wrap = _without_waiting(api._wrap)
    _run_and_exit(argv, LatchedLogs(latch))


def _without_waiting(wrap: Callable[..., None]) -> Callable[..., None]:
    """``wrap`` runs a rank in a fork of the agent, and lets it wait at its end until all others have ended.

    Like a rank in a process of its own, it must end then: its connections close, and ranks that wait for it for ever
    fail at once. torchrun has read its result before that, or reads it from the pipe.
    """

    def wrap_and_end(*arguments: Any) -> None:
        wrap(*(_Set() if isinstance(each, Event) else each for each in arguments))

    return wrap_and_end


class _Set:
    """An event that has happened."""

    def wait(self) -> bool:
        return True


def run_cold(argv: list[str]) -> None:
    """Run torchrun in this fresh interpreter."""
    _run_and_exit(argv)


def _run_and_exit(argv: list[str], logs_specs: Any = None) -> None:
    """Run torchrun and exit as it does; ``logs_specs`` replaces its own."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch
    from torch.distributed.run import config_from_args, get_args_parser

    from rekindle.keeper.torchrun.rendezvous import configure_rendezvous

    parsed = get_args_parser().parse_args(argv)
    configure_rendezvous(parsed)
    config, entrypoint, arguments = config_from_args(parsed)
    config.logs_specs = logs_specs or config.logs_specs

    signal.signal(signal.SIGCHLD, lambda *_: _report_dead_ranks())
    _report_reaped_ranks()
    code = 0
    try:
        elastic_launch(config, entrypoint)(*arguments)
    except ChildFailedError as error:
        for failure in error.failures.values():
            report_exit(failure.pid, failure.exitcode)
        print(error, file=sys.stderr)  # noqa: T201  # stderr is the agent's log
        code = 1
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _report_dead_ranks() -> None:
    for pid in map(int, Path("/proc/thread-self/children").read_text().split()):
        try:
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            continue
        if ended is not None:
            by_signal = ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
            report_exit(pid, -ended.si_status if by_signal else ended.si_status)


def _report_reaped_ranks() -> None:
    """From now on, and in this process only, also report what ``os.waitpid`` returns."""
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
        exited = ControlMessage(MessageType.RANK_EXITED, env.attempt, pid=pid, exit_code=code, signal=number)
        notify(env.run_dir, exited)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    set_process_name("torchrun")
    run_cold(sys.argv[2:])
