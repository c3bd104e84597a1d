"""Figures, states and outcomes in words; what prints them makes text of users harmless."""

import shlex
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from rich.text import Text

from rekindle_service.cli.layout import harmless, progress_bar
from rekindle_service.cli.terminal import ExitCode, exit_code_for
from rekindle_service.client import Checkpoint, Job, Outcome, Rank, StepTimes, TimeBreakdown
from rekindle_service.client.answers import QueuedJob, ValidatedJob
from rekindle_service.job_wording import job_label

ABSENT = "-"  # the cell of a value that there is not
STATE_STYLES = {
    "queued": "dim",
    "starting": "cyan",
    "running": "blue",
    "stalled": "bold yellow",
    "recovering": "yellow",
    "succeeded": "green",
    "failed": "bold red",
    "cancelled": "magenta",
}

_ESTIMATE_STEP = 300  # seconds
_USUAL_SILENCE = 15.0  # seconds without progress
_USUAL_SHARE = 0.1  # of the time that counts as hung, where steps are known

# --- figures


def duration(seconds: float) -> str:
    """``75`` → ``1 min 15 s``: the two largest units."""
    whole = round(seconds)
    for large, name, small, rest in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= large:
            return f"{whole // large} {name} {whole % large // small} {rest}"
    return f"{whole} s"


def size(count: int) -> str:
    """Bytes in the unit that leaves at most three digits before the point."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def local_time(time: str | None) -> datetime | None:
    """An ISO 8601 time of the API in the reader's time zone."""
    return None if time is None else datetime.fromisoformat(time).astimezone()


def clock(time: str | None) -> str:
    """``14:02:11`` of today, with the date on another day, or ``-`` for None."""
    when = local_time(time)
    if when is None:
        return ABSENT
    today = datetime.now(when.tzinfo).date()
    return f"{when:%H:%M:%S}" if when.date() == today else f"{when:%Y-%m-%d %H:%M:%S}"


def retry(time: str | None) -> str:
    """``retry at 14:02:11``; empty once that is past, and for None."""
    when = local_time(time)
    return "" if when is None or when <= datetime.now(when.tzinfo) else f"retry at {clock(time)}"


def start_time(time: str | None) -> str:
    """An estimate: ``14:05`` within a day, ``Tue 14:05`` within a week, else the date; ``-`` for None.

    It is rounded up to 5 minutes, and to a minute where that is soon, as in what a job waits for.
    """
    when = local_time(time)
    if when is None:
        return ABSENT
    left = (when - datetime.now(when.tzinfo)).total_seconds()
    step = _ESTIMATE_STEP if left > _ESTIMATE_STEP else 60
    when += timedelta(seconds=-when.timestamp() % step)
    return f"{when:%H:%M}" if left < 86400 else f"{when:%a %H:%M}" if left < 6 * 86400 else f"{when:%m-%d}"


def times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def number_of(count: int, noun: str) -> str:
    """``1 job`` or ``2 jobs``."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def join(parts: Iterable[str], separator: str = "; ") -> str:
    """The parts that are not empty."""
    return separator.join(part for part in parts if part)


# --- jobs


def job_name(job: Job) -> str:
    return job_label(job["name"], job["number"])


def on_hold(name: str) -> str:
    """What a person can do about a job that is held in the queue."""
    return f"On hold. Start it: `rekindle resume {shlex.quote(name)}`"


def state_text(state: str) -> Text:
    return harmless(state, STATE_STYLES.get(state, ""))


def state_name(job: Job) -> str:
    """The job's state; ``stalled`` for a running one without progress, ``held`` for one that is held in the queue."""
    if job.get("stalled") is not None:
        return "stalled"
    return "held" if exit_code_for(job) is ExitCode.HELD else job["state"]


def stalled(job: Job) -> str:
    """``Stalled for 12 s: rank 1 …; counts as hung in 18 s``; empty while there is progress."""
    if (found := job.get("stalled")) is None:
        return ""
    since, hung_at = local_time(found["since"]), local_time(found["hung_at"])
    if since is None or hung_at is None:
        return ""
    now = datetime.now(since.tzinfo)
    waited, left = (now - since).total_seconds(), (hung_at - now).total_seconds()
    verdict = f"counts as hung in {duration(left)}" if left > 0 else "counts as hung now"
    return f"Stalled for {duration(max(waited, 0.0))}: {found['sentence']}; {verdict}"


def target(job: Job) -> str:
    """``train.py --lr 0.1``, ``-m pkg.train`` or ``recipe ddp``."""
    prefix = {"module": "-m ", "recipe": "recipe "}.get(job["target"]["kind"], "")
    return " ".join([prefix + job["target"]["value"], *job["args"]])


def requested_ranks(job: Job | ValidatedJob) -> str:
    low, high = job["ranks"]["min"], job["ranks"]["max"]
    return str(low) if low == high else f"{low} to {high}"


def progress(job: Job) -> str:
    """``step 120 of 400 (30%)``; where the script reports no steps, an estimate from what it prints, or nothing."""
    if job["step"] is None:
        if job["estimated_step"] is None and job["estimated_epoch"] is None:
            return ""
        step = "" if job["estimated_step"] is None else f"step {job['estimated_step']}"
        about = join([step, "" if job["progress"] is None else f"{job['progress']:.0%}"], ", ")
        return about and f"about {about} (estimate)"
    of = "" if job["steps"] is None else f" of {job['steps']}"
    share = "" if job["progress"] is None else f" ({job['progress']:.0%})"
    return f"step {job['step']}{of}{share}"


def silence(rank: Rank) -> str:
    """``no progress for 2 min 5 s, counts as hung after 5 min 0 s`` of any rank, where that is unusual."""
    seconds, timeout = rank.get("without_progress"), rank["hang_timeout"]
    if seconds is None or timeout is None:
        return ""
    usual = _USUAL_SILENCE if rank["step"] is None else max(_USUAL_SILENCE, timeout * _USUAL_SHARE)
    if seconds <= usual:
        return ""
    return f"no progress for {duration(seconds)}, counts as hung after {duration(timeout)}"


def is_late(rank: Rank) -> bool:
    """Whether its last heartbeat is older than the time after which the job counts as hung."""
    age, timeout = rank["heartbeat_age"], rank["hang_timeout"]
    return age is not None and timeout is not None and age > timeout


def epoch_and_speed(job: Job) -> Iterable[str]:
    """``epoch 1 of 4``, ``10 steps/s`` and ``about 28 s left``, as far as they are known."""
    if job["epoch"] is not None:
        yield f"epoch {job['epoch']}" + ("" if job["epochs"] is None else f" of {job['epochs']}")
    elif job["estimated_epoch"] is not None:
        yield f"about epoch {job['estimated_epoch']} (estimate)"
    if job["steps_per_second"] is not None:
        yield f"{job['steps_per_second']:.3g} steps/s"
    if job["eta_seconds"] is not None:
        yield f"about {duration(job['eta_seconds'])} left"


def checkpoint(found: Checkpoint) -> str:
    """``out/ckpt.pt  1.2 GB, 3 min 2 s old, loaded by attempt 2``: one that the script itself wrote."""
    loaded = "" if found["loaded"] is None else f"loaded by attempt {found['loaded']}"
    facts = [size(found["bytes"]), age(found["written_at"]), "" if found["complete"] else "incomplete", loaded]
    return f"{found['path']}  {join(facts, ', ')}"


def age(time: str | None) -> str:
    """``3 min 2 s old``."""
    when = local_time(time)
    return "" if when is None else f"{duration(max((datetime.now(when.tzinfo) - when).total_seconds(), 0.0))} old"


def since(time: str | None) -> str:
    """``3 min``, without the seconds."""
    return " ".join(age(time).split()[:2])


def drain_loss(job: Job) -> str:
    """What a drain loses of a script that reports no steps; empty for one that does."""
    if job["step"] is not None or job["state"] == "queued":
        return ""
    stopped = "The script reports no steps to rekindle: it is stopped by SIGTERM, and unless it saves then,"
    latest = next((each for each in job["checkpoints"] if each["complete"] and each["attempt"]), None)
    if latest is None:
        return f"{stopped} all its work is lost: no checkpoint of its own was found."
    where = f"{latest['path']}, {age(latest['written_at'])}"
    return f"{stopped} what it did after its checkpoint ({where}) is lost."


def step_cell(job: Job | Rank) -> str:
    """``120/400`` in a table; ``~120`` for an estimate, ``epoch ~8`` where only epochs are printed."""
    if job["step"] is None:
        step, epoch = job.get("estimated_step"), job.get("estimated_epoch")
        return f"~{step}" if step is not None else ABSENT if epoch is None else f"epoch ~{epoch}"
    return f"{job['step']}" + ("" if job["steps"] is None else f"/{job['steps']}")


def speed_cell(job: Job | Rank) -> str:
    return ABSENT if job["steps_per_second"] is None else f"{job['steps_per_second']:.3g}/s"


def time_breakdown(time: TimeBreakdown) -> str:
    """``training 2 min 5 s, replayed 4 s``: every category of at least a second, training first."""
    order = ("training", "saving", "replayed", "stalled", "starting", "waiting", "queued")
    spent = ((category, time["seconds"][category]) for category in order)
    return ", ".join(f"{category} {duration(seconds)}" for category, seconds in spent if seconds >= 1)


def step_split(times: StepTimes) -> str:
    """``120 ms: data 64%, forward 20%``, the largest first; "" where it is not measured."""
    total = times["step_seconds"]
    shares = (
        sorted(((seconds / total, phase) for phase, seconds in times["seconds"].items()), reverse=True) if total else []
    )
    parts = ", ".join(f"{phase} {share:.0%}" for share, phase in shares if share >= 0.01)
    return f"{total * 1000:.3g} ms: {parts}" if total else ""


def job_cells(job: Job) -> dict[str, str | Text]:
    """What tables of jobs show, by the heading of the column."""
    return {
        "#": str(job["number"]),
        "ID": job["id"],
        "NAME": job["name"],
        "OWNER": owner(job),
        "STATE": state_text(state_name(job)),
        "STEP": step_cell(job),
        "DONE": progress_bar(job["progress"]),
        "SPEED": speed_cell(job),
        "LEFT": ABSENT if job["eta_seconds"] is None else duration(job["eta_seconds"]),
        "ENDED": since(job["ended_at"]) or ABSENT,
        "RANKS": str(job["world_size"] or requested_ranks(job)),
        "RESTARTS": str(job["restarts"]),
        "STARTS": start_time(job["estimated_start_at"]),
        "STATUS": status_line(job),
    }


def on_slurm(job: Job | ValidatedJob) -> str:
    """``2 nodes (n1, n2), partition gpu, Slurm job 17 (RUNNING)``; empty for a job on this machine."""
    slurm = job.get("slurm")
    if slurm is None:
        return ""
    low, high = job["nodes"]["min"], job["nodes"]["max"]
    nodes = number_of(high, "node") if low == high else f"{low} to {high} nodes"
    hosts = f" ({', '.join(slurm['hosts'])})" if slurm["hosts"] else ""
    named = (f"{name} {slurm[name]}" for name in ("partition", "account", "qos") if slurm[name])
    state = "" if slurm["job_id"] is None else f"Slurm job {slurm['job_id']}"
    state += f" ({slurm['state']})" if slurm["state"] else ""
    return join([nodes + hosts, *named, state], ", ")


def on_devices(devices: list[str]) -> str:
    return f" on {', '.join(devices)}" if devices else ""


def outcome(ending: Outcome) -> str:
    """``rank 1: ValueError: boom (train.py:42)``, with rank and position only where the message omits them."""
    message = ending["message"]
    rank, position = f"rank {ending.get('rank')}", f"{ending.get('file')}:{ending.get('line')}"
    if ending.get("rank") is not None and rank not in message.lower():
        message = f"{rank}: {message}"
    if ending.get("file") is not None and position not in message:
        message = f"{message} ({position})"
    return message


def classified_outcome(ending: Outcome) -> str:
    """``user_error: rank 1: ValueError: boom (train.py:42)``."""
    return f"{ending['class']}: {outcome(ending)}"


def fault(name: str | None, rank: int | None, snapshot: int | None = None) -> str:
    """``kill rank 1``, ``corrupt-snapshot of step 40`` or ``agent``."""
    of_rank = "" if rank is None else f" rank {rank}"
    return f"{name}{of_rank}" + ("" if snapshot is None else f" of step {snapshot}")


def owner(job: Job | ValidatedJob) -> str:
    return job["owner"] or "local"


def start_estimate(job: Job) -> str:
    estimate = job.get("estimated_start_at")
    return "" if estimate is None else f"starts about {start_time(estimate)}"


def displacement(displaced: dict[str, Any]) -> str:
    """``preempted: job #12 of higher priority needs its slots``: what is happening to a job that runs."""
    verb = {"preempt": "being preempted", "resize": "being resized", "device": "leaving a device"}
    return f"{verb.get(displaced.get('kind', ''), 'being moved')}: {displaced.get('reason', '')}"


def preempted(job: Job | QueuedJob) -> str:
    count = job.get("preemptions")
    return f"preempted {times(count)}" if count else ""


def status_line(job: Job) -> str:
    """What is happening to the job now, in addition to its state."""
    match job["state"]:
        case "queued" if job["intent"] == "hold":
            return join([on_hold(job["name"]), job["notice"] or ""])
        case "queued":
            position = "" if job["queue_position"] is None else f"position {job['queue_position']} in the queue"
            return join([job["reason"], position, start_estimate(job), preempted(job)])
        case "starting" | "running" | "recovering" if (displaced := job.get("displaced")) is not None:
            return displacement(displaced)
        case "starting" | "running" if words := job["waiting_for"] or ((slurm := job.get("slurm")) and slurm["reason"]):
            return words
        case "running" if without_progress := stalled(job):
            return without_progress
        case "recovering":
            why = "" if job["outcome"] is None else outcome(job["outcome"])
            return join([why.removesuffix("."), job["waiting_for"] or "", retry(job["next_try_at"])])
        case "failed" if job["outcome"] is not None:
            return outcome(job["outcome"])
        case _:
            return job["notice"] or job["phase"] or ""
