"""Figures and outcomes in words. Pure; every piece of text that a user wrote comes out harmless."""

from datetime import datetime

from rekindle_service.client import Job, JobTime, Outcome
from rekindle_service.sanitize import sanitize_line

ABSENT = "-"  # in a table, what there is none of


def duration(seconds: float) -> str:
    """``75`` → ``1 min 15 s``: the two largest units that say something."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def time_breakdown(time: JobTime) -> str:
    """``training 2 min 5 s, done again 4 s``: what took a second at least, the training first."""
    names = {"training": "training", "saving": "saving", "replayed": "done again"}
    names |= {kind: kind for kind in ("starting", "waiting", "queued")}
    spent = [(name, time["seconds"][kind]) for kind, name in names.items()]
    return ", ".join(f"{name} {duration(seconds)}" for name, seconds in spent if seconds >= 1)


def size(count: int) -> str:
    """Bytes in the unit that leaves at most three digits before the point."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def local_time(moment: str | None) -> datetime | None:
    """An ISO 8601 moment of the interface in the time zone of the reader."""
    return None if moment is None else datetime.fromisoformat(moment).astimezone()


def clock(moment: str | None) -> str:
    """``14:02:11`` of today, with the date on another day, or ``-`` for what has not happened."""
    when = local_time(moment)
    if when is None:
        return ABSENT
    today = datetime.now(when.tzinfo).date()
    return f"{when:%H:%M:%S}" if when.date() == today else f"{when:%Y-%m-%d %H:%M:%S}"


def target(job: Job) -> str:
    """``train.py --lr 0.1``, ``-m pkg.train`` or ``recipe ddp``."""
    prefix = {"module": "-m ", "recipe": "recipe "}.get(job["target"]["kind"], "")
    return sanitize_line(" ".join([prefix + job["target"]["value"], *job["args"]]))


def steps(job: Job) -> str:
    """``step 120 of 400 (30 %)``, or an empty text for a script that reports no steps."""
    if job["step"] is None:
        return ""
    of = "" if job["steps"] is None else f" of {job['steps']}"
    share = "" if job["progress"] is None else f" ({job['progress']:.0%})"
    return f"step {job['step']}{of}{share}"


def epochs(job: Job) -> str:
    if job["epoch"] is None:
        return ""
    return f"epoch {job['epoch']}" + ("" if job["epochs"] is None else f" of {job['epochs']}")


def speed(job: Job) -> str:
    """``12.3 steps/s, about 23 s left``, as far as it is known."""
    rate = "" if job["steps_per_second"] is None else f"{job['steps_per_second']:.3g} steps/s"
    left = "" if job["eta_seconds"] is None else f"about {duration(job['eta_seconds'])} left"
    return ", ".join(part for part in (rate, left) if part)


def wanted_ranks(job: Job) -> str:
    """``2``, or ``1 to 4`` for an elastic job."""
    least, most = job["ranks"]["min"], job["ranks"]["max"]
    return str(least) if least == most else f"{least} to {most}"


def outcome(ending: Outcome) -> str:
    """``rank 1: ValueError: boom (train.py:42)``, with rank and place only where the message does not name them."""
    message = sanitize_line(ending["message"])
    rank, place = f"rank {ending.get('rank')}", sanitize_line(f"{ending.get('file')}:{ending.get('line')}")
    if ending.get("rank") is not None and rank not in message.lower():
        message = f"{rank}: {message}"
    if ending.get("file") is not None and place not in message:
        message = f"{message} ({place})"
    return message


def fault(name: str, rank: int | None, snapshot: int | None = None) -> str:
    """``kill rank 1``, ``corrupt-snapshot of step 40`` or ``agent``."""
    victim = "" if rank is None else f" rank {rank}"
    return sanitize_line(name) + victim + ("" if snapshot is None else f" of step {snapshot}")


def situation(job: Job) -> str:
    """What a person would say about the job now, beside its state."""
    match job["state"]:
        case "queued" if job["intent"] == "hold":
            return "held: `rekindle resume` lets it go on"
        case "queued":
            position = "" if job["queue_position"] is None else f"place {job['queue_position']} in the queue"
            wait = "" if job["waiting_for"] is None else f"waits for {sanitize_line(job['waiting_for'])}"
            return "; ".join(part for part in (position, wait) if part)
        case "recovering":
            why = "" if job["outcome"] is None else outcome(job["outcome"])
            when = "" if job["next_try_at"] is None else f"next try at {clock(job['next_try_at'])}"
            return "; ".join(part for part in (why, when) if part)
        case "failed" if job["outcome"] is not None:
            return outcome(job["outcome"])
        case _:
            return sanitize_line(job["notice"] or job["phase"] or "")
