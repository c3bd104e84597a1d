"""What a person can do after an attempt has ended badly, by the class of its outcome."""

from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.states import JobState
from rekindle_service.sanitize import sanitize_line
from rekindle_service.store.tables import Job

ADVICE: dict[OutcomeClass, str] = {
    OutcomeClass.SUCCESS: "Nothing is left to do.",
    OutcomeClass.USER_ERROR: "Correct the code or arguments and submit it again; `--continue` keeps its snapshots.",
    OutcomeClass.OOM: "Use a smaller batch per rank or more ranks.",
    OutcomeClass.SIGNAL: "If nobody sent the signal, the end of the rank's output may show why.",
    OutcomeClass.HANG: "See what the rank does at its line. If such a pause is normal, set a longer hang timeout.",
    OutcomeClass.COMM: "Check the network and the GPUs; `rekindle doctor` does so.",
    OutcomeClass.NAN: "Lower the learning rate, or continue from an older snapshot.",
    OutcomeClass.DISK_FULL: "Free space on the disk of the home; `rekindle disk` shows what uses it.",
    OutcomeClass.PREEMPTED: "`rekindle resume` continues a drained job; a preempted one continues when it is its turn.",
    OutcomeClass.CANCELLED: "`rekindle resume` continues the job.",
    OutcomeClass.LAUNCH_ERROR: "Check the interpreter and the packages of the job; `rekindle doctor` does so.",
    OutcomeClass.KEEPER_LOST: "See the end of keeper.log in the run directory, and whether something kills processes.",
    OutcomeClass.HOST_LOST: "Check the power and the kernel's log of the machine.",
}
"""Shown by the story of a failed job, and in docs/troubleshooting.md."""


def next_step(job: Job, outcome: Outcome) -> str | None:
    """None where nothing is to be done."""
    if job.state is JobState.RECOVERING:
        return "The next attempt starts by itself."
    if job.state is not JobState.FAILED:
        return None
    return f"{ADVICE[outcome.klass]} A retry {_start(job)}."


def _start(job: Job) -> str:
    """Where the next attempt begins: a snapshot, else a checkpoint of the script's own, else the beginning."""
    if job.snapshot_step is not None:
        return f"continues from step {job.snapshot_step}"
    usable = [each for each in job.checkpoints if each["complete"] and (each["attempt"] or each["loaded"])]
    if not usable:
        return "starts from the beginning"
    latest = sanitize_line(usable[0]["path"])
    if loaded := max(each["loaded"] or 0 for each in usable):
        return f"loads the script's latest checkpoint, {latest}, as attempt {loaded} did"
    return f"starts from {latest} if the script loads it, else from the beginning"
