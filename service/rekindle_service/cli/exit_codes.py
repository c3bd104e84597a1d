"""The exit codes of the commands."""

from enum import IntEnum

from rekindle_service.client import Job, Trial, is_settled


class ExitCode(IntEnum):
    """``wait`` and ``--follow`` exit with the outcome of the jobs, every other command with 0, 1 or 2."""

    SUCCEEDED = 0  # done; of `wait`, `submit --follow` and `experiment --follow`: every job has succeeded
    FAILED = 1  # a job has failed or did not recover from `chaos`, or `doctor` or `demo` has found a problem
    USAGE = 2  # the command is wrong, the server has rejected it, or no server runs
    CANCELLED = 3  # the job, or one of the experiment, was cancelled
    HELD = 4  # the job was drained; `rekindle resume` continues it
    INTERRUPTED = 130  # Ctrl-C; the job keeps running


def exit_code_for(job: Job | Trial) -> ExitCode | None:
    """The outcome of a settled job, None while it may still continue by itself."""
    return ExitCode.__members__.get(job["state"].upper(), ExitCode.HELD) if is_settled(job) else None
