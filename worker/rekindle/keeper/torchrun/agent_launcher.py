"""Starts the agents of a job's attempts, mostly torchrun's; a warm keeper forks them, the next before it is needed."""

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import rekindle.rank
from rekindle.contract.environment import READ_LATE
from rekindle.contract.job_options import LaunchMode
from rekindle.contract.processes import die_with_parent, set_process_name
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.placeholders import read_arguments
from rekindle.contract.run_dir.standby_world import HeldRank
from rekindle.keeper import process_agent
from rekindle.keeper.agent import run_warm
from rekindle.keeper.keeper_environment import log
from rekindle.keeper.torchrun.node_plan import NodePlan, loopback_interfaces, node_environment


@dataclass(frozen=True, slots=True)
class _Standby:
    """An agent that waits at its latch; with ``environment``, also its ranks, which run the script by that."""

    attempt: int
    pid: int
    latch: int  # pipe's writing end
    environment: dict[str, str] | None = None


class AgentLauncher:
    """The keeper's only way to start ranks, by torchrun or alone. The keeper must be single-threaded when it forks."""

    def __init__(
        self,
        run_dir: RunDir,
        launch: LaunchMode,
        world_size: int,
        close: Callable[[], None],
        cluster: bool = False,
    ) -> None:
        """``close`` closes in a forked child what only the keeper may keep open.

        ``cluster``: the job runs on nodes of a cluster; ``world_size`` is then the number of ranks of this node, and
        every start needs its ``NodePlan``.
        """
        self._run_dir, self._world_size, self._close = run_dir, world_size, close
        self._is_process = launch is LaunchMode.PROCESS
        self._cluster = cluster
        self._standby: _Standby | None = None

    @property
    def standby(self) -> int | None:
        """Pid of the agent that waits for the next attempt, which must not be killed with this one."""
        return None if self._standby is None else self._standby.pid

    def resize(self, world_size: int) -> None:
        """Start ``world_size`` ranks from now on; an agent that waits for the next attempt was made for others."""
        self.discard()
        self._world_size = world_size

    def start_warm(self, attempt: int, environment: dict[str, str], plan: NodePlan | None = None) -> int:
        """Release the agent that waits for ``attempt``, or a new one; its pid."""
        environment = {**_attempt_environment(plan), **environment}
        if self._standby is None or self._standby.attempt != attempt or not self._is_ready(self._standby, environment):
            self.discard()
            self._standby = self._fork(attempt)
        agent, self._standby = self._standby, None
        attempt_dir = self._run_dir.attempt(attempt)
        agent_log = attempt_dir.agent_log_of(_node(plan))
        begin = [environment, str(agent_log), str(attempt_dir.root / "torchrun")]  # read by ``LatchedLogs``
        with suppress(BrokenPipeError), os.fdopen(agent.latch, "wb") as latch:  # killed just now: it ends the attempt
            latch.write(json.dumps(begin).encode() + b"\n")
        return agent.pid

    def start_cold(self, attempt: int, environment: dict[str, str], plan: NodePlan | None = None) -> int:
        """Start an agent in a fresh interpreter; its pid. One that waits in a fork will never be needed again."""
        self.discard()
        # PYTHONSAFEPATH: the user's directory must not shadow the standard library for torchrun and the wrapper; the
        # wrapper removes it before the script runs.
        full = {**os.environ, **_attempt_environment(plan), **environment, "PYTHONSAFEPATH": "1"}
        argv = [] if self._is_process else self._argv(attempt, warm=False)
        agent = "rekindle.keeper.process_agent" if self._is_process else "rekindle.keeper.agent"
        command = [sys.executable, "-P", "-m", agent, str(os.getpid()), *argv]
        log_path = self._run_dir.attempt(attempt).agent_log_of(_node(plan))
        output = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            actions = [(os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)]
            return os.posix_spawn(sys.executable, command, full, file_actions=actions, setsid=True)
        finally:
            os.close(output)

    def prefork(self, attempt: int, environment: dict[str, str] | None = None) -> None:
        """Have an agent ready for ``attempt``, which then only has to fork the ranks; none where a fork fails.

        With ``environment``, as far as it is known before, the ranks are forked as well, and run the script up to its
        first effect.
        """
        if environment is not None and self._standby is not None and self._standby.environment is None:
            self.discard()
        if self._standby is None:
            with suppress(OSError):
                known = None if environment is None else {**_attempt_environment(None), **environment}
                self._standby = self._fork(attempt, known)

    def _is_ready(self, agent: _Standby, environment: dict[str, str]) -> bool:
        """Whether the ranks, if they wait, may continue in the attempt with this ``environment``."""
        if not _runs(agent.pid):
            return False
        if agent.environment is None:
            return True
        differing = {
            name for name in environment | agent.environment if environment.get(name) != agent.environment.get(name)
        }
        if not differing <= READ_LATE:
            return self._say(f"{', '.join(sorted(differing - READ_LATE))} changed")
        ranks = [read_record(self._run_dir.standby_rank(rank), HeldRank) for rank in range(self._world_size)]
        if any(rank is None for rank in ranks):
            return self._say("a rank has not come to its first effect")
        if any(rank is not None and rank.arguments != read_arguments(self._run_dir, agent.attempt) for rank in ranks):
            return self._say("the arguments changed")
        changed = next((path for rank in ranks if rank is not None and (path := rank.changed()) is not None), None)
        return changed is None or self._say(f"{changed} has changed")

    def _say(self, reason: str) -> bool:
        log(f"standby world discarded: {reason}")
        return False

    def discard(self) -> None:
        """Kill the waiting agent, if there is one."""
        if self._standby is None:
            return
        os.close(self._standby.latch)
        if _runs(self._standby.pid):  # our own child and not reaped: the pid is still its own
            os.kill(self._standby.pid, signal.SIGKILL)
            os.waitpid(self._standby.pid, 0)
        self._standby = None

    def _fork(self, attempt: int, environment: dict[str, str] | None = None) -> _Standby:
        """``environment``: see ``prefork``."""
        keeper = os.getpid()
        if environment is not None:
            shutil.rmtree(self._run_dir.standby, ignore_errors=True)
            self._run_dir.standby.mkdir()
        reader, writer = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(reader)
            os.close(writer)
            raise
        if pid == 0:
            try:
                os.close(writer)
                self._close()
                die_with_parent(keeper)
                set_process_name(process_agent.NAME if self._is_process else "torchrun")
                os.setsid()
                signal.set_wakeup_fd(-1)
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_DFL)
                os.environ.update(environment or {})
                if self._is_process:
                    process_agent.run_warm(reader, standby=environment is not None)
                standby = None if environment is None else self._run_dir.standby
                run_warm(self._argv(attempt, warm=True), reader, cluster=self._cluster, standby=standby)
            except BaseException:  # noqa: BLE001  # nothing may return into the keeper's own code
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(reader)
        return _Standby(attempt, pid, writer, environment)

    def _argv(self, attempt: int, *, warm: bool) -> list[str]:
        # A warm agent learns its directory at the latch: until then the attempt has not begun and has none.
        log_dir = Path(os.devnull) if warm else self._run_dir.attempt(attempt).root / "torchrun"
        rendezvous_id = f"{self._run_dir.job_id}.{attempt}"
        return torchrun_argv(world_size=self._world_size, rendezvous_id=rendezvous_id, log_dir=log_dir, warm=warm)


def torchrun_argv(*, world_size: int, rendezvous_id: str, log_dir: Path, warm: bool) -> list[str]:
    """Arguments for torchrun, as ``keeper.agent`` runs it: one node, and no restarts inside torchrun.

    Every flag is given, so that no ``PET_*`` variable can change one. torchrun's restarts reuse one store, so that
    restarted ranks can read a dead attempt's addresses; the keeper makes a fresh attempt instead. ``warm`` forks the
    ranks from the agent, which must have imported torch and nothing that starts threads; otherwise each is a fresh
    interpreter.
    """
    wrapper = Path(rekindle.rank.__file__).with_name("__main__.py")
    return [
        "--nnodes=1",
        f"--nproc-per-node={world_size}",
        f"--rdzv-id={rendezvous_id}",
        "--max-restarts=0",
        "--monitor-interval=0.1",
        f"--log-dir={log_dir}",
        "--redirects=0",
        "--tee=0",
        *(["--start-method=fork", "--run-path", str(wrapper)] if warm else ["-m", "rekindle.rank"]),
    ]


def _attempt_environment(plan: NodePlan | None) -> dict[str, str]:
    """What the agent of an attempt gets in addition to the job's own variables."""
    return loopback_interfaces(os.environ) if plan is None else node_environment(os.environ, plan)


def _node(plan: NodePlan | None) -> int | None:
    return None if plan is None else plan.node


def _runs(pid: int) -> bool:
    """Whether our child ``pid`` has not ended; it is not reaped by this."""
    with suppress(ChildProcessError):
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    return False
