"""The torchrun agent of one attempt: stock torchrun, which also tells the keeper how each rank ended.

torchrun reports only the first failing rank, and only when it has stopped the others. The kernel tells us at once:
on SIGCHLD the status of a dead rank is looked at without reaping it (WNOWAIT), so torchrun notices nothing. Where
torchrun happens to reap a rank first, its own report at the end fills the gap.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from rekindle.contract.environ import RankEnv
from rekindle.contract.prctl import die_with_parent, set_process_name
from rekindle.contract.rank_records import ring

COLD_ARGV = ["-P", "-m", "rekindle.keeper.agent"]


def fork_agent(argv: list[str], environment: dict[str, str], log: Path, close: Callable[[], None]) -> int:
    """Fork a warm agent from this process and return its pid. ``close`` drops what the child must not keep open."""
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            close()
            _become_agent(keeper, log)
            os.environ.update(environment)
            _run_torchrun(argv)
        finally:
            os._exit(1)
    return pid


def spawn_agent(argv: list[str], environment: dict[str, str], log: Path) -> int:
    """Start a cold agent in a fresh interpreter and return its pid."""
    # PYTHONSAFEPATH: the user's folder must not shadow the standard library for torchrun and the wrapper; the
    # wrapper removes it before the script runs.
    full = {**os.environ, **environment, "PYTHONSAFEPATH": "1"}
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, file, 1), (os.POSIX_SPAWN_DUP2, file, 2)]
        command = [sys.executable, *COLD_ARGV, str(os.getpid()), *argv]
        return os.posix_spawn(sys.executable, command, full, file_actions=actions, setsid=True)
    finally:
        os.close(file)


def _become_agent(keeper: int, log: Path) -> None:
    die_with_parent(keeper)
    set_process_name("torchrun")
    os.setsid()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _run_torchrun(argv: list[str]) -> None:
    """Run stock torchrun in this process and exit as it does."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main

    signal.signal(signal.SIGCHLD, lambda *_: _report_dead_ranks())
    try:
        main(argv)
    except ChildFailedError as error:
        for failure in error.failures.values():
            _ring_exit(failure.pid, failure.exitcode)
        print(error, file=sys.stderr)  # noqa: T201  # stderr is the agent's log
        code = 1
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    else:
        code = 0
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _report_dead_ranks() -> None:
    for pid in _children():
        try:
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            continue
        if ended is not None:
            by_signal = ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
            _ring_exit(pid, -ended.si_status if by_signal else ended.si_status)


def _ring_exit(pid: int, exit_code: int) -> None:
    """``exit_code`` as Python's process classes give it: negative for a signal."""
    env = RankEnv.read(os.environ)
    if env.run_dir is not None:
        code, number = (exit_code, None) if exit_code >= 0 else (None, -exit_code)
        message = {"bell": "rank_exited", "attempt": env.attempt, "pid": pid, "exit_code": code, "signal": number}
        ring(env.run_dir.bell, message)


def _children() -> list[int]:
    return [int(pid) for pid in Path("/proc/thread-self/children").read_text().split()]


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    set_process_name("torchrun")
    _run_torchrun(sys.argv[2:])
