"""What sentences call a job, and what they say of its state."""

import re

from rekindle.contract.states import JobState

HELD = "on hold"
_DIGITS = re.compile(r"\d+")

STATE_PHRASES = {
    **{state: f"is {state}" for state in JobState},
    JobState.SUCCEEDED: "has succeeded",
    JobState.FAILED: "has failed",
    JobState.CANCELLED: "was cancelled",
}
"""With their verb."""


def like_name(name: str) -> str:
    """Equal for ``eval 7 of run-12`` and ``eval 8 of run-13``."""
    return _DIGITS.sub("#", name)


def job_label(name: str, number: int) -> str:
    """``digits (#3)``."""
    return f"{name} (#{number})"


def quoted_label(name: str, number: int) -> str:
    """``job "digits" (#3)``."""
    return f'job "{name}" (#{number})'
