"""What ``$?`` says after a command."""

from enum import IntEnum

from rekindle_service.client import Job, Trial


class ExitCode(IntEnum):
    """``wait`` and ``--follow`` end with the fate of the jobs, every other command with 0 or 2."""

    SUCCEEDED = 0
    FAILED = 1  # the job failed or did not come back, the demo did not show what it promises, or there is a problem
    USAGE = 2  # the command is wrong, the server refused it, or no server runs
    CANCELLED = 3  # somebody cancelled the job
    HELD = 4  # the job was drained and waits for `rekindle resume`
    INTERRUPTED = 130  # Ctrl-C; the job goes on


_FATES = {"succeeded": ExitCode.SUCCEEDED, "failed": ExitCode.FAILED, "cancelled": ExitCode.CANCELLED}


def fate(job: Job | Trial) -> ExitCode | None:
    """How the job ended, or None while it may still go on by itself."""
    if job["state"] == "queued" and job["intent"] == "hold":
        return ExitCode.HELD
    return _FATES.get(job["state"])
