"""Which rank holds the others up, and where. Pure: from what was seen of all ranks to one sentence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rekindle.keeper.stacks import Frame, waits_for_peers
from rekindle.keeper.vital_signs import Vitals

_LOADER = "torch/utils/data/dataloader.py"
_STATES = {"T": "is stopped (SIGSTOP)", "t": "is stopped by a debugger", "D": "is in uninterruptible sleep"}


@dataclass(frozen=True, slots=True)
class Suspect:
    """One rank of a world that stands still."""

    vitals: Vitals
    frames: Sequence[Frame]  # main thread, innermost first; empty where it could not be had
    place: Frame | None  # innermost line of the user's own code


@dataclass(frozen=True, slots=True)
class Accusation:
    """Who and where. ``rank`` is None where every rank waits for the others and none stands out."""

    rank: int | None
    sentence: str
    place: Frame | None = None


@dataclass(frozen=True, slots=True)
class Hang:
    """A world that stood still, who is to blame, and what was seen."""

    seconds: float
    accusation: Accusation
    evidence: dict[str, Any]


def accuse(world: Sequence[Suspect]) -> Accusation:
    """The rank that the others wait for, by the strongest evidence there is."""
    for suspect in world:
        if (state := _STATES.get(suspect.vitals.state or "")) is not None:
            return _name(suspect, state)
    if (behind := _behind(world)) is not None:
        return _name(behind, _doing(behind))
    absent = [suspect for suspect in world if suspect.frames and not waits_for_peers(suspect.frames)]
    if absent and (len(absent) < len(world) or len(world) == 1):
        return _name(absent[0], _doing(absent[0]))
    places = sorted({f"{s.place.file}:{s.place.line}" for s in world if s.place is not None})
    return Accusation(None, "all ranks stand still at " + (", ".join(places) or "places that could not be seen"))


def _behind(world: Sequence[Suspect]) -> Suspect | None:
    """The one rank that has begun fewer collectives than the rest, if there is exactly one."""
    counts = {suspect.vitals.rank: suspect.vitals.collectives for suspect in world}
    known = [count for count in counts.values() if count is not None]
    if len(known) < 2 or min(known) == max(known):
        return None
    least = [suspect for suspect in world if suspect.vitals.collectives == min(known)]
    return least[0] if len(least) == 1 else None


def _doing(suspect: Suspect) -> str:
    if any(frame.file.endswith(_LOADER) for frame in suspect.frames[:8]):
        return "waits for its data loader"
    count = suspect.vitals.collectives
    return "does not reach the next collective" + (f" (it has begun {count})" if count is not None else "")


def _name(suspect: Suspect, what: str) -> Accusation:
    where = "" if suspect.place is None else f" at {suspect.place.file}:{suspect.place.line}"
    return Accusation(suspect.vitals.rank, f"rank {suspect.vitals.rank} {what}{where}", suspect.place)
