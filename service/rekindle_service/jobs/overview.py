"""What people care about, in that order: what needs them, what runs, what is next, what has ended.

One sentence for each, which the page and the command line show as it is.
"""

from rekindle.contract.states import JobIntent, JobState
from rekindle_service.store.tables import Job

_MAX_MESSAGE = 300  # characters
_DISPLACEMENTS = {"preempt": "being preempted", "resize": "being resized", "device": "leaving a device"}


def reason(job: Job) -> str:
    """Why the job is where it is, in one line without its full stop; "" where there is nothing to add to its state.

    It may contain text of the job.
    """
    match job.state:
        case JobState.QUEUED:
            return HELD if job.intent is JobIntent.HOLD else waits(job)
        case JobState.FAILED | JobState.CANCELLED:
            return _ending(job)
        case JobState.SUCCEEDED:
            return job.notice or ""
        case JobState.RECOVERING:
            return _ending(job) or job.notice or ""
        case _:
            stalled = (job.stalled or {}).get("sentence")
            return _displaced(job) or job.waiting_for or (f"stalled: {stalled}" if stalled else job.notice or "")


HELD = "on hold until it is released"


def waits(job: Job) -> str:
    """``waits for 2 cuda slots, 1 free``; a sentence about the owner is whole as it is."""
    why = job.waiting_for
    if not why:
        return "waits to be scheduled"
    if why.startswith("behind "):
        return f"waits {why}"
    return f"waits: {why}" if why.startswith("its owner ") else f"waits for {why}"


def _displaced(job: Job) -> str:
    if not job.displaced:
        return ""
    what = _DISPLACEMENTS.get(job.displaced.get("kind", ""), "being moved")
    return f"{what}: {job.displaced.get('reason') or ''}"


def _ending(job: Job) -> str:
    """The message of the failure, and where it happened as far as the message does not say so itself."""
    outcome = job.outcome or {}
    message = first_line(str(outcome.get("message") or ""))
    rank, file, line = outcome.get("rank"), outcome.get("file"), outcome.get("line")
    places = [f"rank {rank}"] if rank is not None else []
    if file:
        places.append(f"{file}:{line}" if line else str(file))
    places = [place for place in places if place.lower() not in message.lower()]
    return f"{message} ({', '.join(places)})" if message and places else message or ", ".join(places)


def first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _MAX_MESSAGE else f"{line[:_MAX_MESSAGE]}…"
