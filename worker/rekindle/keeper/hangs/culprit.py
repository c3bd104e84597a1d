"""Which rank the others wait for, and where: from what all ranks do and have called to one sentence. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rekindle.contract.rank_traces import Collective, Frame, called_collective, waits_for_peers
from rekindle.keeper.attempt_result import Culprit
from rekindle.keeper.hangs.deviation import describe, find_deviation, is_usual
from rekindle.keeper.rank_processes.probe import RankSample
from rekindle.rank.failure import relative_to_code

_LOADER = "torch/utils/data/dataloader.py"
_MAX_EXCEPTIONS = 4  # in a sentence
_STOPPED = "T"  # the kernel's letter
_STATES = {_STOPPED: "is stopped (SIGSTOP)", "t": "is stopped by a debugger", "D": "is in uninterruptible sleep"}


@dataclass(frozen=True, slots=True)
class RankObservation:
    """One rank of a world that makes no progress."""

    sample: RankSample
    frames: list[Frame]  # main thread, innermost first; empty where they are not known
    position: Frame | None  # innermost line of the user's own code
    history: list[Collective] = field(default_factory=list)  # its latest ones; empty where they are not known
    aborted: bool = False  # by gloo, which got something else from another rank than what it had requested
    waits: bool = False  # for other ranks, whatever its frames show: NCCL's collectives return at once
    answers: bool = True  # its recorder does; it does not where the rank is stopped, or holds the GIL
    kernel_call: str | None = None  # the kernel's function in which its main thread waits; "" where it runs
    exceptions: str = ""  # that it is handling, or that have ended its threads, as a clause

    @property
    def is_missing(self) -> bool:
        """True where the rank is known to do something else than to wait for other ranks."""
        return bool(self.frames) and not self.waits and not waits_for_peers(self.frames)

    @property
    def is_silent(self) -> bool:
        """True where the rank does not answer, and nothing shows that it waits for other ranks."""
        return not self.answers and not self.waits and not waits_for_peers(self.frames)

    @property
    def waits_for_peers(self) -> bool:
        """True by recorder, stack, or kernel: gloo's threads wake the main thread, which waits on a futex."""
        if self.waits or waits_for_peers(self.frames) or (self.answers and self.sample.in_collective):
            return True
        return not self.frames and (self.kernel_call or "").startswith("futex")

    @property
    def in_collective(self) -> bool:
        """True where its recorder and its stack, if there is one, show that it waits in a collective."""
        called = self.answers and self.sample.in_collective and bool(self.history)
        return called and (not self.frames or self.waits or waits_for_peers(self.frames))

    @property
    def may_end(self) -> bool:
        """True where nothing shows that it waits for another rank or loops: a sleep, a lock or an upload may end."""
        waits = waits_for_peers(self.frames) if self.frames else self.answers and self.sample.in_collective
        return not (self.waits or waits or self.sample.in_dead_loop)


@dataclass(frozen=True, slots=True)
class FinishedRank:
    """A rank whose script has ended as it should, while others still run."""

    rank: int
    step: int | None  # its last one, where it reports them
    file: str | None = None  # where its script called ``sys.exit``
    line: int | None = None
    is_marked: bool = True  # it has reached the end of its script, or called ``sys.exit``


@dataclass(frozen=True, slots=True)
class WorldObservation:
    """All ranks, or those of one machine, at a time when they make no progress or one has failed."""

    failed: list[RankObservation] = field(default_factory=list)
    running: list[RankObservation] = field(default_factory=list)
    finished: list[FinishedRank] = field(default_factory=list)
    stacks: dict[str, str] = field(default_factory=dict)  # of a hang, by rank: the end of what its threads do
    timeout: float = 0.0  # hang timeout in force, in seconds

    def __add__(self, other: "WorldObservation") -> "WorldObservation":
        return WorldObservation(
            self.failed + other.failed,
            self.running + other.running,
            self.finished + other.finished,
            self.stacks | other.stacks,
            max(self.timeout, other.timeout),
        )


def position_in_code(frames: Sequence[Frame], code: Path) -> Frame | None:
    """The innermost frame in the user's own code, its file relative to ``code``; else the innermost of all."""
    for frame in frames:
        if (file := relative_to_code(frame.file, code)) is not None:
            return Frame(file, frame.line, frame.function)
    return frames[0] if frames else None


def find_culprit(world: Sequence[RankObservation], finished: Sequence[FinishedRank] = ()) -> Culprit:
    """The rank that the others wait for, by the strongest evidence there is."""
    return _with_exceptions(_find_culprit(world, finished), world)


def _with_exceptions(found: Culprit, world: Sequence[RankObservation]) -> Culprit:
    """Add to ``found`` the exceptions that may be its cause, whichever rank has them."""
    exceptions = [rank.exceptions for rank in world if rank.exceptions][:_MAX_EXCEPTIONS]
    return replace(found, description="; ".join([found.description, *exceptions]))


def _find_culprit(world: Sequence[RankObservation], finished: Sequence[FinishedRank]) -> Culprit:
    for rank in world:
        if (state := _STATES.get(rank.sample.state or "")) is not None:
            return replace(_attribute(rank, state), may_end=rank.sample.state != _STOPPED)
    if (silent := _silent(world)) is not None:
        return _attribute_lag(silent, world)
    deviating = _deviating(world)
    if deviating is not None and deviating.rank is not None:
        return deviating
    if (lagging := _lagging(world)) is not None:
        return _attribute_lag(lagging, world)
    missing = [rank for rank in world if rank.is_missing]
    if missing and (len(missing) < len(world) or (len(world) == 1 and not finished)):
        return _attribute_lag(missing[0], world)
    may_end = all(rank.may_end for rank in world)
    if finished:
        certain = all(rank.in_collective and rank.history[-1].in_default_group for rank in world)
        return replace(_attribute_to_finished(finished[0], world), may_end=may_end, is_certain=certain)
    if len(suspects := [rank for rank in world if rank.exceptions]) == 1:
        return _attribute(suspects[0], "waits for the others")
    if deviating is not None:
        return deviating
    return Culprit(None, "all ranks wait at " + (_positions(world) or "unknown positions"), may_end=may_end)


def find_missing_peer(
    failed: Sequence[RankObservation], running: Sequence[RankObservation], finished: Sequence[FinishedRank]
) -> Culprit | None:
    """The missing peer that the ``failed`` ranks have noticed by lost connections; None where nothing shows it.

    Where more ranks have finished than failed, those that failed have called what the others do not. A rank whose
    collective took too long has waited as in a hang.
    """
    if any(rank.waits for rank in failed):
        return find_culprit([*failed, *running], finished)
    found = _find_missing_peer(failed, running, finished)
    return None if found is None else _with_exceptions(found, running)


def _find_missing_peer(
    failed: Sequence[RankObservation], running: Sequence[RankObservation], finished: Sequence[FinishedRank]
) -> Culprit | None:
    if finished and len(finished) <= len(failed):
        return _attribute_to_finished(finished[0], failed)
    if finished:
        last = f" {describe(failed[0].history[-1])}" if failed[0].history else ""
        return _attribute(failed[0], f"still called{last or ' a collective'}", " after the other ranks had finished")
    if (deviating := _deviating([*failed, *running])) is not None:
        return deviating
    if (aborted := [rank for rank in failed if rank.aborted]) and len(aborted) == 1:
        return _attribute_abort(aborted[0], [rank for rank in (*failed, *running) if rank.history])
    gone = [rank for rank in running if rank.is_missing]
    return _attribute(gone[0], "had left the process group while the others still used it, and is") if gone else None


def _silent(world: Sequence[RankObservation]) -> RankObservation | None:
    """A rank that does not answer while another one waits: it holds the GIL, and the others wait for it."""
    silent = [rank for rank in world if rank.is_silent]
    if len(silent) == len(world):  # their kernel decides
        silent = [rank for rank in silent if not rank.waits_for_peers]
    return silent[0] if silent and any(rank.waits_for_peers for rank in world if rank not in silent) else None


def _deviating(world: Sequence[RankObservation]) -> Culprit | None:
    """Find the culprit by the order of the collectives: of several ranks that lag, the one that waits for nobody.

    Where two do not match and nothing shows which one is wrong, the rank is None.
    """
    found = find_deviation({rank.sample.rank: rank.history for rank in world})
    if found is None:
        return None
    ranks = [rank for rank in world if rank.sample.rank in found.ranks]
    if found.made is None:
        missing = [rank for rank in ranks if rank.is_missing]
        suspect = (missing or ranks)[0]
        return _attribute_lag(suspect, world) if missing or len(ranks) == 1 else None
    certain = found.is_certain and all(rank.in_collective for rank in world)
    if not ranks:
        return replace(_mismatch(world, found.made, found.expected), is_certain=certain)
    others = [number for number in found.ranks if number != ranks[0].sample.rank]
    more = f" (so did {', '.join(f'rank {number}' for number in others)})" if others else ""
    call = _attribute_call(ranks[0], found.made, f" where the others called {describe(found.expected)}{more}")
    return replace(call, is_certain=certain)


def _mismatch(world: Sequence[RankObservation], one: Collective, other: Collective) -> Culprit:
    """A rank that has called ``one``, and a rank that has called ``other``, with their lines."""
    callers = [(next(rank for rank in world if each in rank.history), each) for each in (one, other)]
    return Culprit(None, " where ".join(_attribute_call(rank, each).description for rank, each in callers))


def _attribute_call(rank: RankObservation, call: Collective, reason: str = "") -> Culprit:
    """Name ``rank`` for a ``call``; its line is not that of the call where it has made another one since."""
    if rank.history[-1] == call or rank.position is None:
        return _attribute(rank, f"called {describe(call)}", reason)
    return _attribute(rank, f"called {describe(call)}{reason}, and is now")


def _attribute_abort(aborted: RankObservation, others: Sequence[RankObservation]) -> Culprit:
    """Name the rank that was wrong where two sent different things: gloo aborts one, and its history is lost."""
    made = called_collective(aborted.frames) or "a collective"
    if not others:
        return _attribute(aborted, f"called {made}", ", which does not match what the others called")
    other = f"rank {others[0].sample.rank}"
    called = describe(others[0].history[-1])
    if is_usual(others[0].history):
        return _attribute(aborted, f"called {made}", f" where {other} called {called}")
    return _attribute(others[0], f"called {called}", f" where rank {aborted.sample.rank} called {made}")


def _attribute_to_finished(finished: FinishedRank, waiting: Sequence[RankObservation]) -> Culprit:
    """Name a rank that has ended; without ``sys.exit`` its line is the one at which the others wait for it."""
    ended = "had finished" if finished.is_marked else "had ended with exit code 0 (by os._exit or exec)"
    if finished.step is not None:
        ended += f", after step {finished.step},"
    file, line = finished.file, finished.line
    if file is not None:
        ended += f" at {file}:{line}"
    elif waiting and (position := waiting[0].position) is not None:
        file, line = position.file, position.line
    who = ", ".join(f"rank {rank.sample.rank}" for rank in waiting[:4]) or "the others"
    where = f" at {places}" if (places := _positions(waiting)) else ""
    description = (
        f"rank {finished.rank} {ended} while {who} still waited for it{where}: "
        "it has left its loop early, or had fewer batches"
    )
    return Culprit(finished.rank, description, file, line)


def _positions(world: Sequence[RankObservation]) -> str:
    places = {f"{rank.position.file}:{rank.position.line}" for rank in world if rank.position is not None}
    return ", ".join(sorted(places))


def _lagging(world: Sequence[RankObservation]) -> RankObservation | None:
    """The one rank that has enqueued fewer collectives than the rest, if there is exactly one."""
    known = [rank.sample.collectives for rank in world if rank.sample.collectives is not None]
    lowest = min(known, default=None)
    least = [rank for rank in world if rank.sample.collectives == lowest]
    return least[0] if len(least) == 1 < len(known) else None


def _attribute_lag(rank: RankObservation, world: Sequence[RankObservation]) -> Culprit:
    """Name a rank that has called fewer collectives than the others, which is no mistake yet."""
    found = _attribute(rank, _activity(rank))
    waiting = [each for each in world if each is not rank and each.waits_for_peers]
    who = "; ".join([*([_waiting(waiting)] if waiting else []), found.description])
    return replace(found, description=who, may_end=rank.may_end)


def _activity(rank: RankObservation) -> str:
    if any(frame.file.endswith(_LOADER) for frame in rank.frames[:8]):
        return "waits for its data loader"
    return "has not reached the next collective" if rank.position is None else "is still"


def _waiting(ranks: Sequence[RankObservation]) -> str:
    """Clause about ranks that wait in the same collective, as in ``rank 0 waits in collective 31``."""
    numbers = [rank.sample.collectives or next((each.number for each in rank.history[-1:]), None) for rank in ranks]
    number = next(filter(None, numbers), None)
    where = "a collective" if number is None else f"collective {number}"
    return f"rank {ranks[0].sample.rank} waits in {where}" if len(ranks) == 1 else f"{len(ranks)} ranks wait in {where}"


def _attribute(rank: RankObservation, what: str, reason: str = "") -> Culprit:
    """Name ``rank``, which does ``what`` at its line and is wrong for the ``reason``."""
    who = f"rank {rank.sample.rank} {what}"
    if rank.position is None:
        return Culprit(rank.sample.rank, who + reason)
    file, line = rank.position.file, rank.position.line
    return Culprit(rank.sample.rank, f"{who} at {file}:{line}{reason}", file, line)
