"""The agent of a job that torchrun does not start: one process, which is rank 0, and its end reported to the keeper.

It takes torchrun's place in the tree of processes, so that an attempt is watched, ended and judged in the same way. Its
module path is fixed, as that of ``keeper.agent`` is.
"""

import os
import sys
import traceback
from collections.abc import Callable

from rekindle.contract.environment import NODE_PLAN
from rekindle.contract.processes import die_with_parent, set_process_name
from rekindle.keeper.agent import replace_where_cuda_is_lost, report_exit

NAME = "rekindle-agent"


def run_warm(latch: int, *, standby: bool = False) -> None:
    """Wait until the pipe ``latch`` brings the attempt, then fork the rank. Does not return.

    With ``standby`` the rank is forked at once and waits by itself.
    """
    from rekindle.keeper.torchrun.latch import pass_on, wait_for_attempt

    if standby:
        pass_on(latch, 1)
    else:
        wait_for_attempt(latch)
    _run_and_exit(_fork)


def run_cold() -> None:
    """Start the rank in a fresh interpreter. Does not return."""
    command = [sys.executable, "-u", "-m", "rekindle.rank"]
    _run_and_exit(lambda: os.posix_spawn(sys.executable, command, os.environ))


def _run_and_exit(start: Callable[[], int]) -> None:
    os.environ.pop(NODE_PLAN, None)  # of a cluster: one process has no use for it
    rank = start()
    ended = os.waitid(os.P_PID, rank, os.WEXITED | os.WNOWAIT)  # not reaped before the keeper knows how it ended
    killed = ended is not None and ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
    status = 0 if ended is None else ended.si_status
    report_exit(rank, -status if killed else status)
    os._exit(0 if status == 0 else 1)


def _fork() -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            replace_where_cuda_is_lost({})
            from rekindle.rank.wrapper import main

            main()
            code = 0
        except SystemExit as error:
            print(error, file=sys.stderr)  # noqa: T201  # stderr is the agent's log until the rank has its own
        except BaseException:  # noqa: BLE001  # nothing may return into the agent's own code
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    set_process_name(NAME)
    run_cold()
