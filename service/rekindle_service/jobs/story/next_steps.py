"""What a person can do after an attempt has ended badly, by the class of its outcome."""

from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.states import JobState
from rekindle_service.store.tables import Job

_BY_CLASS = {
    OutcomeClass.USER_ERROR: "Correct the code and submit it again, or change the arguments.",
    OutcomeClass.OOM: "Use a smaller batch per rank or more ranks.",
    OutcomeClass.SIGNAL: "If nobody sent the signal, the end of the rank's output may show why.",
    OutcomeClass.HANG: "See what the rank does at its line. If such a pause is normal, set a longer hang timeout.",
    OutcomeClass.COMM: "Check the network and the GPUs; `rekindle doctor` does so.",
    OutcomeClass.NAN: "Lower the learning rate, or continue from an older snapshot.",
    OutcomeClass.DISK_FULL: "Free space on the disk of the home; `rekindle disk` shows what uses it.",
    OutcomeClass.LAUNCH_ERROR: "Check the interpreter and the packages of the job; `rekindle doctor` does so.",
}


def next_step(job: Job, outcome: Outcome) -> str | None:
    """None where nothing is to be done."""
    if job.state is JobState.RECOVERING:
        return "The next attempt starts by itself."
    if job.state is not JobState.FAILED:
        return None
    advice = _BY_CLASS.get(outcome.klass, "")
    saved = job.snapshot_step
    start = "starts from the beginning" if saved is None else f"continues from step {saved}"
    return f"{advice} A retry {start}.".lstrip()
