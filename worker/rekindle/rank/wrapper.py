"""Runs the user's script as ``__main__`` with its own arguments, directory and exit code, and records how it ended."""

import atexit
import faulthandler
import gc
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from rekindle.contract.environment import USED_CUDA, RankEnv, tracker_environment
from rekindle.contract.files import write_json
from rekindle.contract.job import DRAINED_EXIT_CODE, JobSpec
from rekindle.contract.processes import (
    ProcessIdentity,
    die_with_parent,
    forbid_core_dumps,
    open_descriptors,
    set_process_name,
)
from rekindle.contract.run_dir.control_messages import ControlMessage, MessageType, notify
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RankDir, RunDir
from rekindle.contract.run_dir.placeholders import attempt_arguments, read_arguments
from rekindle.contract.run_dir.rank_records import RankDone, RankState, RankStatus
from rekindle.rank import distributed_hooks
from rekindle.rank.distributed_hooks import leave_agent_store_to_this_rank
from rekindle.rank.entrypoint import run_target
from rekindle.rank.failure import describe, exit_code, position, print_like_python
from rekindle.rank.file_tracking import track_files
from rekindle.rank.handlers import (
    install_fault_handler,
    open_debug_server,
    record_thread_exceptions,
    register_stack_dump,
    save_collectives,
)
from rekindle.rank.rank_process import (
    announce_share,
    bind_to_cores,
    capture_output,
    flush_open_files,
    move_output,
    reset_multiprocessing,
)
from rekindle.rank.standby import Standby
from rekindle.rank.step_timer import StepTimer

EXIT_LIMIT = 120.0  # seconds; the upload of a tracker may take long
_EXIT_QUIET = 5.0  # seconds for which exit functions usually take no longer
_FRESH = (
    "importing {module} initialized CUDA, which cannot be used in a process that is forked afterwards: the ranks start "
    "in new interpreters, a few seconds slower"
)


def main() -> None:
    """Become the rank. Returns when the script ended well, so that torchrun sees it finish; else exits as it did."""
    env = RankEnv.read(os.environ)
    if env.run_dir is None or env.rank_dir is None:
        raise SystemExit("rekindle.rank is started by rekindle's keeper, not by hand: use `rekindle submit`")
    used_cuda = os.environ.pop(USED_CUDA, None)
    if used_cuda is not None:  # a fresh interpreter in place of a fork, whose descriptors the script must not inherit
        for fd in open_descriptors() - {0, 1, 2}:
            os.set_inheritable(fd, False)
    standby = Standby.from_environment(env, env.run_dir)
    _become_a_rank(env, env.run_dir.code)
    spec = JobSpec.from_json(json.loads(env.run_dir.spec.read_bytes()))
    bind_to_cores(env)
    announce_share(spec)
    record = _Record(env, env.run_dir, env.rank_dir, spec, used_cuda and _FRESH.format(module=used_cuda))
    rank_pid = os.getpid()
    timer = StepTimer(env.rank_dir.steps, env.local_world_size) if spec.step_times else None
    begin = partial(_begin, env, env.rank_dir, env.run_dir, record, timer)
    arguments = _begin_or_stand_by(standby, begin, env.run_dir, env.attempt, spec)
    error = _run_target(spec if arguments is None else replace(spec, args=arguments), env.run_dir.code, standby)
    code = exit_code(error)
    if os.getpid() != rank_pid:  # a child that the script forked reached the script's end: it is no rank
        _leave(error, code)
    if code != 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun's, which would interrupt the exit functions
    if error is not None and code not in (0, DRAINED_EXIT_CODE):
        record.failed(error)
        _leave(error, code)

    def end() -> None:
        try:
            record.done(error, drained=code == DRAINED_EXIT_CODE)
        except OSError as full:  # the disk, as a rule: without the marker this rank is not done
            record.failed(full)
            _leave(full, 1)

    _run_exit_functions(partial(_limit_exit, record=record, end=end))
    end()


def _become_a_rank(env: RankEnv, code: Path) -> None:
    """Reset what the agent has set in this process, and end it when the agent ends."""
    die_with_parent(os.getppid())
    forbid_core_dumps()
    set_process_name(f"rank {env.rank}")
    if os.getsid(0) != os.getpid():
        os.setsid()
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGIO):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    record_thread_exceptions(env.rank, code)
    os.environ.update(tracker_environment(env, os.environ))
    reset_multiprocessing()
    leave_agent_store_to_this_rank()
    distributed_hooks.install()
    gc.freeze()  # what is loaded already stays shared with the keeper, and is not the script's


def _begin(
    env: RankEnv,
    rank_dir: RankDir,
    run_dir: RunDir,
    record: "_Record",
    timer: StepTimer | None,
    write_logs: Callable[[RankDir], None],
) -> None:
    """Become a rank of the attempt, which has begun."""
    rank_dir.root.mkdir(parents=True, exist_ok=True)
    open_debug_server(rank_dir, env.rank, run_dir.code)
    write_logs(rank_dir)
    register_stack_dump(rank_dir)
    install_fault_handler(rank_dir)
    record.started()
    track_files(run_dir, rank_dir)
    if timer is not None:
        timer.install()


def _begin_or_stand_by(
    standby: Standby | None,
    begin: Callable[[Callable[[RankDir], None]], None],
    run_dir: RunDir,
    attempt: int,
    spec: JobSpec,
) -> list[str] | None:
    """Arguments of the script, None for those of the ``spec``; the attempt has begun, or will at its first effect."""
    if standby is None:
        begin(capture_output)
        return read_arguments(run_dir, attempt)
    capture_output(None)
    arguments = attempt_arguments(spec, run_dir, attempt)
    standby.watch(partial(begin, move_output), arguments)
    return arguments


def _run_target(spec: JobSpec, code: Path, standby: Standby | None = None) -> BaseException | None:
    """Run the script; returns the exception that ended it, SystemExit among them."""
    rank_pid = os.getpid()
    try:
        run_target(spec, code)
    except BaseException as error:  # noqa: BLE001  # every way to end is handled by the caller
        return error
    finally:
        if standby is not None and os.getpid() == rank_pid:
            standby.hold()  # it has ended without an effect
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a data loader's handler raises where a worker's death finds us
    return None


def _leave(error: BaseException | None, code: int) -> NoReturn:
    """End this process as the interpreter would have; a return would lead into torchrun's own code."""
    try:
        print_like_python(error)
        _run_exit_functions()
    finally:
        os._exit(code)


def _run_exit_functions(limit: Callable[[threading.Event], None] | None = None) -> None:
    """Do what the interpreter does between the last line and the end; a forked process would skip it.

    ``limit`` runs meanwhile in a thread, with the event of their end.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # joins the script's non-daemon threads
    except BaseException:  # noqa: BLE001  # such as Ctrl-C: the interpreter, too, shows it and then ends
        traceback.print_exc()
    ended = threading.Event()
    if limit is not None:
        threading.Thread(target=limit, args=(ended,), daemon=True).start()
    atexit._run_exitfuncs()
    ended.set()
    for stream in (sys.stdout, sys.stderr):  # the script may have closed or replaced them
        with suppress(AttributeError, ValueError, OSError):
            stream.flush()
    flush_open_files()


def _limit_exit(ended: threading.Event, record: "_Record", end: Callable[[], None]) -> None:
    """End this process, whose script has ended well, without its exit functions after ``EXIT_LIMIT`` seconds.

    They may wait for ever, as those of NCCL do for ranks that have gone.
    """
    if ended.wait(_EXIT_QUIET):
        return
    record.exiting()
    if not ended.wait(EXIT_LIMIT - _EXIT_QUIET):
        print(f"rekindle: exit functions did not end within {EXIT_LIMIT:.0f} s", file=sys.stderr)  # noqa: T201  # its log
        faulthandler.dump_traceback()
        end()
        os._exit(0)


def _device_names(env: RankEnv) -> str:
    """Names that torch has for the GPUs of this rank among those that it sees."""
    first = env.local_rank * env.devices_per_rank
    return ", ".join(f"cuda:{index}" for index in range(first, first + env.devices_per_rank))


class _Record:
    """This rank's own files and its messages to the keeper."""

    def __init__(self, env: RankEnv, run_dir: RunDir, rank_dir: RankDir, spec: JobSpec, notice: str | None) -> None:
        self._env, self._run_dir, self._rank_dir = env, run_dir, rank_dir
        identity = ProcessIdentity.own()
        self._first = RankStatus(
            rank=env.rank,
            local_rank=env.local_rank,
            world_size=env.world_size,
            host=env.host or socket.gethostname(),
            pid=identity.pid,
            start_time=identity.start_time,
            device=_device_names(env) if spec.device_kind == "cuda" else "cpu",
            state=RankState.RUNNING,
            notice=notice,
        )

    def started(self) -> None:
        self._write(self._first)
        self._notify(MessageType.RANK_STARTED)

    def exiting(self) -> None:
        """Record that nothing but exit functions is left."""
        self._write(replace(self._status(), phase="exit"))

    def done(self, ended_by: BaseException | None, *, drained: bool) -> None:
        status = self._status()
        file, line = (None, None) if ended_by is None else position(ended_by, self._run_dir.code)
        done = RankDone(self._env.rank, drained, status.step, time.time(), status.completed, file, line)
        write_json(self._rank_dir.done, done.to_json())
        self._write(replace(status, state=RankState.DRAINED if drained else RankState.DONE))
        self._notify(MessageType.RANK_DONE)

    def failed(self, error: BaseException) -> None:
        if isinstance(error, RuntimeError) and self._env.world_size > 1:  # what a failed collective raises
            save_collectives(self._rank_dir)
        with suppress(OSError):  # a full disk must not hide why the script failed: it is on stderr too
            described = describe(self._env.rank, error, self._run_dir.code, self._rank_dir.log("stderr"))
            write_json(self._rank_dir.error, described.to_json())
            self._write(replace(self._status(), state=RankState.FAILED))
        self._notify(MessageType.RANK_FAILED)

    def _status(self) -> RankStatus:
        """The status that the script has reported since; that of the start where the file is invalid."""
        return read_record(self._rank_dir.status, RankStatus) or self._first

    def _write(self, status: RankStatus) -> None:
        now = replace(status, updated_at=time.time())
        write_json(self._rank_dir.status, now.to_json(), durable=False)

    def _notify(self, message_type: MessageType) -> None:
        notify(self._run_dir, ControlMessage(message_type, self._env.attempt, self._env.rank), self._env.node)
