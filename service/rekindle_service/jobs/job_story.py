"""What happened to a job: one sentence, the rank and the line to blame, and what to do. Shown by page and command line.

All of it follows from the job's row, its attempts and what their ranks have left in the run directory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from rekindle.contract.field_texts import Described
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.attempt_history import AttemptSummary, replayed_steps
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.rank_records import RankError
from rekindle.contract.safe_open import stat_beneath
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.job_wording import HELD
from rekindle_service.jobs.rank_groups import StackGroup, stack_groups
from rekindle_service.jobs.source_lines import SourceReader, StoryFrame
from rekindle_service.jobs.tracebacks import offset_of_error, parse_traceback, user_frames_first
from rekindle_service.sanitize import sanitize_line, strip_control
from rekindle_service.store.tables import Job

_MAX_REASON = 300  # characters
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


def waits(job: Job) -> str:
    """``waiting for 2 GPU slots, 1 free``; a sentence about the owner is whole as it is."""
    why = job.waiting_for
    if not why:
        return "waiting to be scheduled"
    if why.startswith("after "):
        return f"waiting {why}"
    return f"waiting: {why}" if why.startswith("its owner ") else f"waiting for {why}"


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
    return line if len(line) <= _MAX_REASON else f"{line[:_MAX_REASON]}…"


ADVICE: dict[OutcomeClass, str] = {
    OutcomeClass.SUCCESS: "Nothing is left to do.",
    OutcomeClass.USER_ERROR: "Correct the code or arguments and submit it again; `--continue` keeps its snapshots.",
    OutcomeClass.OOM: "Use a smaller batch per rank or more ranks.",
    OutcomeClass.SIGNAL: "If nobody sent the signal, the end of the rank's output may show why.",
    OutcomeClass.HANG: "See what the rank does at its line. If such a pause is normal, set a longer hang timeout.",
    OutcomeClass.COMM: "Check the network and the GPUs; `rekindle doctor` does so.",
    OutcomeClass.NAN: "Lower the learning rate, or continue from an older snapshot.",
    OutcomeClass.DIVERGENCE: "`rekindle replay` computes the step again, and shows whether the device is the cause.",
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
    """Name where the next attempt begins: a snapshot, else a checkpoint of the script's own, else the beginning."""
    if job.snapshot_step is not None:
        return f"continues from step {job.snapshot_step}"
    usable = [each for each in job.checkpoints if each["complete"] and (each["attempt"] or each["loaded"])]
    if not usable:
        return "starts from the beginning"
    latest = sanitize_line(usable[0]["path"])
    if loaded := max(each["loaded"] or 0 for each in usable):
        return f"loads the script's latest checkpoint, {latest}, as attempt {loaded} did"
    return f"starts from {latest} if the script loads it, else from the beginning"


MAX_FRAMES = 20
_GROUP_FRAMES = 4
_MAX_GROUPS = 4
_MAX_MESSAGE = 4000  # characters


class StoryKind(StrEnum):
    """What there is to report of an attempt."""

    FAILURE = "failure"
    HANG = "hang"
    STOP = "stop"  # on request
    RUNNING = "running"
    FINISHED = "finished"
    WAITING = "waiting"  # no attempt runs, and none has ended badly


_KINDS = {
    OutcomeClass.SUCCESS: StoryKind.FINISHED,
    OutcomeClass.HANG: StoryKind.HANG,
    OutcomeClass.PREEMPTED: StoryKind.STOP,
    OutcomeClass.CANCELLED: StoryKind.STOP,
}
_NO_FAILURES = {OutcomeClass.SUCCESS, OutcomeClass.PREEMPTED, OutcomeClass.CANCELLED}
_TITLES = {
    OutcomeClass.HANG: "Hang: no rank made progress",
    OutcomeClass.OOM: "Out of memory",
    OutcomeClass.COMM: "The ranks lost each other",
    OutcomeClass.NAN: "Loss or weights are not finite",
    OutcomeClass.DIVERGENCE: "The ranks no longer hold the same model",
    OutcomeClass.DISK_FULL: "The disk is full",
    OutcomeClass.LAUNCH_ERROR: "The ranks could not be started",
    OutcomeClass.KEEPER_LOST: "The keeper was lost",
    OutcomeClass.HOST_LOST: "A machine was lost",
    OutcomeClass.PREEMPTED: "Stopped",
    OutcomeClass.CANCELLED: "Cancelled",
    OutcomeClass.SUCCESS: "Finished",
}


@dataclass(frozen=True, slots=True)
class RaisedException(Described):
    """The exception that ended the script."""

    type: str
    """Class of the exception, such as `ValueError`."""
    message: str
    """Its message, at most 4,000 characters."""


@dataclass(frozen=True, slots=True)
class RankGroup(Described):
    """Ranks that did the same when a hang was found."""

    ranks: list[int]
    """Global ranks."""
    what: str
    """What they did, as the rest of a sentence that begins with their names."""
    frames: list[StoryFrame]
    """Stack of the first of them, innermost first."""


@dataclass(frozen=True, slots=True)
class SameError(Described):
    """Another job that failed by the same exception at the same line."""

    id: str
    """Id of the job."""
    number: int
    """Number of the job."""
    name: str
    """Name of the job."""


@dataclass(frozen=True, slots=True)
class Story(Described):
    """What happened to a job, for people."""

    attempt: int
    """Number of the attempt that it is about; 0 before the first."""
    kind: StoryKind
    """What there is to report: `failure`, `hang`, `stop` (on request), `running`, `finished` or `waiting`."""
    title: str
    """Heading of a few words."""
    sentence: str
    """What happened, in a sentence."""
    rank: int | None = None
    """Rank whose log shows it; null where that is not known."""
    stream: str | None = None
    """Log that shows it: `stdout` or `stderr`; null where that is not known."""
    offset: int | None = None
    """Byte offset at which the log shows it; null where that is not known."""
    at: float | None = None
    """When it happened, in seconds since the epoch; null where that is not known."""
    exception: RaisedException | None = None
    """Exception that ended the script; null where there was none."""
    frames: list[StoryFrame] = field(default_factory=list)
    """Levels of the stack: those of the user's code, then those of libraries, innermost first."""
    hidden_frames: int = 0
    """Number of further levels that are not listed."""
    groups: list[RankGroup] = field(default_factory=list)
    """Of a hang, what the ranks did, grouped."""
    same_error: list[SameError] = field(default_factory=list)
    """Other jobs that you may read with the same exception at the same line."""
    next_step: str | None = None
    """What to do next, in a sentence; null where nothing needs to be done."""
    repeated: bool = False
    """Whether the attempt before ended by the same exception at the same line: a retry will probably do so, too."""


FindSameError = Callable[[Outcome], list[SameError]]
"""Other jobs, which the reader may read, with the same error."""


def read_story(
    job: Job, attempts: Sequence[AttemptSummary], run_dir: RunDir, number: int | None, find_same_error: FindSameError
) -> Story:
    """The story of the attempt ``number``, by default of the job as it is now. ``attempts`` ascend."""
    if number is None and (now := _present(job, attempts)) is not None:
        return now
    attempt = next((each for each in reversed(attempts) if number in (None, each.number)), None)
    is_last = attempt is None or attempt is attempts[-1]
    outcome = None if attempt is None else attempt.outcome
    if is_last and number is None and job.outcome is not None:
        outcome = Outcome.from_json(job.outcome)
    if outcome is None:
        return _running(job, attempts, attempt)
    story = _ended(job, attempt, outcome, run_dir)
    if story.kind is StoryKind.FAILURE:
        before = next((each.outcome for each in reversed(attempts) if each.number < story.attempt), None)
        story = replace(story, same_error=find_same_error(outcome), repeated=_is_same_exception(before, outcome))
    if not is_last or (advice := next_step(job, outcome)) is None:
        return story
    again = "The attempt before ended by the same exception at the same line. " if story.repeated else ""
    return replace(story, next_step=again + advice)


def _is_same_exception(before: Outcome | None, outcome: Outcome) -> bool:
    if before is None or outcome.exception is None:
        return False
    return (before.exception, before.file, before.line) == (outcome.exception, outcome.file, outcome.line)


def _present(job: Job, attempts: Sequence[AttemptSummary]) -> Story | None:
    """The story of a job of which nothing has ended badly now; None where its latest attempt shows what happened."""
    match job.state:
        case JobState.QUEUED:
            held = job.intent is not JobIntent.RUN
            title, sentence = ("On hold", "It starts when it is resumed.") if held else ("Queued", "")
            return Story(job.attempt, StoryKind.WAITING, title, sentence or job.waiting_for or "")
        case JobState.STARTING:
            return Story(job.attempt, StoryKind.WAITING, "Starting", job.waiting_for or "")
        case JobState.RUNNING:
            return _running(job, attempts, attempts[-1] if attempts else None)
    return None


def _running(job: Job, attempts: Sequence[AttemptSummary], attempt: AttemptSummary | None) -> Story:
    """The story of a running attempt, with how the one before it ended, which is why this one runs."""
    if attempt is None:
        return Story(0, StoryKind.RUNNING, "Running", "")
    before = next((each for each in reversed(attempts) if each.number < attempt.number), None)
    start = attempt.resumed_from_step
    sentence = f"Attempt {attempt.number} is running" + (f", resumed from step {start}." if start else ".")
    if before is not None and before.outcome is not None:
        sentence += f" Attempt {before.number}: {strip_control(before.outcome.message)}"
    return Story(
        attempt.number, StoryKind.RUNNING, recovered(job, attempts) or "Running", sentence, at=attempt.started_at
    )


def recovered(job: Job, attempts: Sequence[AttemptSummary]) -> str:
    """``Recovered 3 times, 8 steps replayed``; empty for a job that has not failed."""
    if not job.restarts:
        return ""
    times = {1: "once", 2: "twice"}.get(job.restarts, f"{job.restarts} times")
    replayed = replayed_steps(attempts)
    failed = [each for each in attempts if each.outcome is not None and each.outcome.klass not in _NO_FAILURES]
    steps = sum(replayed[each.number] or 0 for each in failed)
    return f"Recovered {times}" + (f", {steps} step{'' if steps == 1 else 's'} replayed" if steps else "")


def start_reasons(attempts: Sequence[AttemptSummary], rollbacks: Sequence[float] = ()) -> dict[int, str]:
    """Why each attempt began at its step, as far as it is known, by number; "" where it is not.

    ``attempts`` ascend by number and are all of the job's; ``rollbacks``: when a person chose an older snapshot.
    """
    reasons: dict[int, str] = {}
    before: AttemptSummary | None = None
    for attempt in attempts:
        since = 0.0 if before is None else before.started_at
        on_request = any(since < at <= attempt.started_at for at in rollbacks)
        reasons[attempt.number] = _start_reason(attempt, before, on_request=on_request)
        before = attempt
    return reasons


def _start_reason(attempt: AttemptSummary, before: AttemptSummary | None, *, on_request: bool) -> str:
    step, saved = attempt.resumed_from_step, None if before is None else before.snapshot_step
    if attempt.resumed_from_path and not (step and saved):  # with a step where a callback reports it
        verb = "loaded" if before is None else "resumed from"
        return f"{verb} its own checkpoint {strip_control(attempt.resumed_from_path)}"
    if step and on_request:
        return f"rolled back on request to the snapshot of step {step}"
    if step and before is None:
        return f"resumed from the snapshot of step {step} of the job that it continues"
    if step and before is not None and before.last_step is not None and step > (saved or 0):
        return f"resumed from the copy in memory of step {step}"
    if step:
        unusable = f"; the one of step {saved} could not be used" if saved is not None and step < saved else ""
        return f"resumed from the snapshot of step {step}{unusable}"
    if before is None:
        return "from the start"
    if attempt.last_step is None:
        return ""
    return "from the start: " + ("no snapshot yet" if saved is None else f"the snapshot of step {saved} was not loaded")


def _ended(job: Job, attempt: AttemptSummary | None, outcome: Outcome, run_dir: RunDir) -> Story:
    kind = _KINDS.get(outcome.klass, StoryKind.FAILURE)
    number, ended_at = (0, job.ended_at) if attempt is None else (attempt.number, attempt.ended_at)
    story = Story(number, kind, _title(outcome), strip_control(outcome.message), at=ended_at)
    if kind is StoryKind.FINISHED and job.step is not None:
        return replace(story, sentence=f"{story.sentence} Step {job.step} was the last.")
    if outcome.rank is not None:
        story = replace(story, rank=outcome.rank, stream=_stream(run_dir, number, outcome.rank))
    if kind is StoryKind.HANG:
        return _with_groups(story, outcome, run_dir)
    return _with_exception(story, outcome, run_dir) if kind is StoryKind.FAILURE else story


def _stream(run_dir: RunDir, attempt: int, rank: int) -> str:
    """Standard error, unless nothing but standard output has anything."""
    rank_dir = run_dir.attempt(attempt).rank(rank)
    sizes = [stat_beneath(run_dir.root, rank_dir.log(stream)) for stream in ("stderr", "stdout")]
    is_empty, other_is_empty = (found is None or not found.st_size for found in sizes)
    return "stdout" if is_empty and not other_is_empty else "stderr"


def _title(outcome: Outcome) -> str:
    who = "" if outcome.rank is None else f" in rank {outcome.rank}"
    match outcome.klass:
        case OutcomeClass.HANG if outcome.rank is not None:
            return f"Hang: the others waited for rank {outcome.rank}"
        case OutcomeClass.SIGNAL | OutcomeClass.USER_ERROR:
            return f"{sanitize_line(outcome.signal or outcome.exception or 'Failed')}{who}"
        case OutcomeClass.OOM | OutcomeClass.NAN:
            return f"{_TITLES[outcome.klass]}{who}"
    return _TITLES[outcome.klass]


def _with_exception(story: Story, outcome: Outcome, run_dir: RunDir) -> Story:
    """Add what the rank itself has recorded of its exception."""
    if story.rank is None or outcome.exception is None:
        return story
    rank_dir = run_dir.attempt(story.attempt).rank(story.rank)
    error = read_record(rank_dir.error, RankError, run_dir.root)
    if error is None or error.exception != outcome.exception:
        error = None
    recorded = outcome.evidence.get("traceback") or ("" if error is None else error.traceback)
    found = parse_traceback(str(recorded), run_dir.code)
    shown = user_frames_first(found.frames, run_dir.code, MAX_FRAMES)
    message = strip_control(outcome.message if error is None else error.message)[:_MAX_MESSAGE]
    at = story.at if error is None else error.at
    return replace(
        story,
        at=at,
        offset=offset_of_error(run_dir.root, rank_dir.log("stderr"), outcome.exception, message),
        exception=RaisedException(sanitize_line(outcome.exception), message),
        frames=SourceReader(run_dir, at).frames(shown),
        hidden_frames=len(found.frames) + found.repeated - len(shown),
    )


def _with_groups(story: Story, outcome: Outcome, run_dir: RunDir) -> Story:
    """Add what each rank did when the hang was found."""
    groups = stack_groups(run_dir, story.attempt, outcome)
    reader = SourceReader(run_dir, story.at)
    culprit = next((group.stack for group in groups if story.rank in group.ranks), [])
    shown = user_frames_first(culprit, run_dir.code, MAX_FRAMES)
    return replace(
        story,
        frames=reader.frames(shown),
        hidden_frames=len(culprit) - len(shown),
        groups=[_group(group, reader, run_dir) for group in groups[:_MAX_GROUPS]],
    )


def _group(group: StackGroup, reader: SourceReader, run_dir: RunDir) -> RankGroup:
    shown = user_frames_first(group.stack, run_dir.code, _GROUP_FRAMES)
    return RankGroup(group.ranks, sanitize_line(group.what), reader.frames(shown))
