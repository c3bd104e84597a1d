"""What sentences call a job, and what they say of its state."""

from rekindle.contract.states import JobState

STATE_PHRASES = {
    **{state: f"is {state}" for state in JobState},
    JobState.SUCCEEDED: "has succeeded",
    JobState.FAILED: "has failed",
    JobState.CANCELLED: "was cancelled",
}
"""With their verb."""


def job_label(name: str, number: int) -> str:
    """``digits (#3)``."""
    return f"{name} (#{number})"


def quoted_label(name: str, number: int) -> str:
    """``job "digits" (#3)``."""
    return f'job "{name}" (#{number})'
