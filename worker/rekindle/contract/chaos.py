"""Faults that a user may inject into a job of their own, to measure what they cost."""

import signal
from enum import StrEnum

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
