"""Faults that a user may have injected into a job of their own, to see what they cost."""

import signal
from enum import StrEnum

CHAOS_SIGNAL = signal.SIGRTMIN + 8
"""Makes a rank do to itself what ``RankDir.chaos`` names; the keeper sends it on request only."""


class Fault(StrEnum):
    """What can go wrong on demand."""

    KILL = "kill"  # SIGKILL to a rank
    STOP = "stop"  # SIGSTOP to a rank: it exists, and does nothing
    CRASH = "crash"  # SIGSEGV to a rank
    RAISE = "raise"  # an exception in a rank's main thread
    HANG = "hang"  # a rank's main thread sleeps for ever
    OOM = "oom"  # a rank raises MemoryError, as an allocation that cannot be served does
    AGENT = "agent"  # SIGKILL to torchrun
    KEEPER = "keeper"  # SIGKILL to the keeper: the server starts another
    CORRUPT_SNAPSHOT = "corrupt-snapshot"  # one bit of the newest snapshot flips


SELF_INFLICTED = frozenset({Fault.RAISE, Fault.HANG, Fault.OOM})
"""Faults that the rank does to itself."""

RANK_FAULTS = SELF_INFLICTED | {Fault.KILL, Fault.STOP, Fault.CRASH}
"""Faults that need a rank."""
