"""Messages by which ranks, agent and server wake a job's keeper, through the control FIFO of the run directory.

Among them are the faults that a user may inject into a job of their own, to measure what they cost.
"""

import json
import os
import signal
import stat
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from signal import NSIG
from typing import Annotated

from rekindle.contract.files import append_line
from rekindle.contract.run_dir.json_records import Count, JsonRecord, Range
from rekindle.contract.run_dir.paths import RunDir

MAX_MESSAGE_BYTES = 4096  # Linux's PIPE_BUF, up to which writes of several processes never mix
CHAOS_SIGNAL = signal.SIGRTMIN + 8  # on request only: makes a rank inject the fault that ``RankDir.chaos`` names


class Fault(StrEnum):
    """What can go wrong on demand."""

    KILL = "kill"  # SIGKILL to a rank
    STOP = "stop"  # SIGSTOP to a rank: it exists, but does not run
    CRASH = "crash"  # SIGSEGV to a rank
    RAISE = "raise"  # an exception in a rank's main thread
    HANG = "hang"  # a rank's main thread sleeps for ever
    OOM = "oom"  # a rank raises MemoryError, as an allocation that cannot be served does
    AGENT = "agent"  # SIGKILL to torchrun
    KEEPER = "keeper"  # SIGKILL to the keeper: the server starts another
    CORRUPT_SNAPSHOT = "corrupt-snapshot"  # one bit of the latest snapshot flips


SELF_INFLICTED = frozenset({Fault.RAISE, Fault.HANG, Fault.OOM})  # faults that the rank injects into itself

RANK_FAULTS = SELF_INFLICTED | {Fault.KILL, Fault.STOP, Fault.CRASH}  # faults that need a rank


class MessageType(StrEnum):
    """What happened, or what is requested, with the fields of ``ControlMessage`` that belong to it."""

    RANK_STARTED = "rank_started"  # attempt, rank
    RANK_DONE = "rank_done"  # attempt, rank
    RANK_FAILED = "rank_failed"  # attempt, rank
    RANK_EXITED = "rank_exited"  # attempt, pid, and exit_code or signal; reason of a SIGKILL
    RESUMED = "resumed"  # attempt, step: the snapshot that training resumed from
    SNAPSHOT_SKIPPED = "snapshot_skipped"  # attempt, step, reason
    STACK = "stack"  # attempt, rank: dump its stacks
    CHAOS = "chaos"  # attempt, fault, and rank where the fault needs one
    INTENT = "intent"  # intent.json has changed


@dataclass(frozen=True, slots=True)
class ControlMessage(JsonRecord):
    """One JSON line; fields that do not belong to ``type`` are None. A script may send anything: see ``Range``."""

    type: MessageType
    attempt: int | None = None
    rank: int | None = None
    pid: int | None = None
    exit_code: Annotated[int, Range(0, 255)] | None = None
    signal: Annotated[int, Range(1, NSIG - 1)] | None = None
    step: Count | None = None
    reason: str | None = None
    fault: Fault | None = None


def parse_message(line: bytes) -> ControlMessage | None:
    """Read one message; None for a line that is no valid one."""
    try:
        return ControlMessage.from_json(json.loads(line)) if len(line) <= MAX_MESSAGE_BYTES else None
    except (ValueError, RecursionError):
        return None


def notify(run_dir: RunDir, message: ControlMessage, node: int | None = None) -> None:
    """Wake the keeper of ``run_dir``; nothing happens when none listens. Raises ValueError for too long a message.

    ``node``: the number of this machine among those of a job on a cluster.
    """
    line = json.dumps(message.to_json()).encode() + b"\n"
    if len(line) > MAX_MESSAGE_BYTES:
        raise ValueError(f"a control message has at most {MAX_MESSAGE_BYTES} bytes, this one has {len(line)}")
    with suppress(OSError):  # nobody listens, or the FIFO is full: no sender ever waits for the keeper
        fd = os.open(run_dir.control_of(node), os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "wb", buffering=0) as pipe:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):  # a job may have put a file there
                pipe.write(line)


def post_request(run_dir: RunDir, message: ControlMessage) -> None:
    """Request something of a coordinator on another machine, which reads it within seconds. Raises OSError."""
    append_line(run_dir.requests, message.to_json(), durable=False)
