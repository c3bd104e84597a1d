"""The states of a job, the intents of a person for it, and the allowed transitions."""

from enum import StrEnum


class JobState(StrEnum):
    """Where a job is; how it ended is its outcome."""

    QUEUED = "queued"  # waits for slots, for another job, or is held
    STARTING = "starting"  # has its slots; its keeper brings up torchrun
    RUNNING = "running"  # every rank of the current attempt runs
    RECOVERING = "recovering"  # an attempt failed or the keeper was lost; the next attempt is coming
    SUCCEEDED = "succeeded"  # every rank was done
    FAILED = "failed"  # stopped for good by what went wrong
    CANCELLED = "cancelled"  # stopped for good by a person


class JobIntent(StrEnum):
    """What a person requests of a job now."""

    RUN = "run"  # start when there are slots, and train to the end
    HOLD = "hold"  # stay in the queue until released
    DRAIN = "drain"  # save a snapshot, release the slots and return to the queue, held
    CANCEL = "cancel"  # stop for good


TERMINAL = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
"""The job has ended; only a person can resume or delete it."""

HOLDING_SLOTS = frozenset({JobState.STARTING, JobState.RUNNING, JobState.RECOVERING})
"""The job occupies its slots and has, or should have, a live keeper."""


def is_settled(state: str, intent: str) -> bool:
    """Whether nothing more happens to the job by itself: it has ended, or is held in the queue."""
    return state in TERMINAL or (state == JobState.QUEUED and intent == JobIntent.HOLD)


_ENDINGS = TERMINAL | {JobState.QUEUED}

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.STARTING, JobState.CANCELLED}),
    JobState.STARTING: _ENDINGS | {JobState.RUNNING, JobState.RECOVERING},
    JobState.RUNNING: _ENDINGS | {JobState.RECOVERING},
    JobState.RECOVERING: _ENDINGS | {JobState.RUNNING},
    JobState.SUCCEEDED: frozenset({JobState.QUEUED}),
    JobState.FAILED: frozenset({JobState.QUEUED}),
    JobState.CANCELLED: frozenset({JobState.QUEUED}),
}
"""All allowed transitions; ``Store`` refuses any other."""
