"""What a fault has cost, told from what the service knows of the attempts around it. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rekindle.contract.chaos import Fault
from rekindle.contract.outcome import OutcomeClass
from rekindle_service.cli import wording
from rekindle_service.cli.fault_plan import SERVER
from rekindle_service.client import Attempt, Outcome
from rekindle_service.sanitize import sanitize_line

_NAMES = {
    Fault.KILL: OutcomeClass.SIGNAL,
    Fault.STOP: OutcomeClass.HANG,
    Fault.CRASH: OutcomeClass.SIGNAL,
    Fault.RAISE: OutcomeClass.USER_ERROR,
    Fault.HANG: OutcomeClass.HANG,
    Fault.OOM: OutcomeClass.OOM,
    Fault.AGENT: OutcomeClass.SIGNAL,
    Fault.KEEPER: OutcomeClass.KEEPER_LOST,
    Fault.CORRUPT_SNAPSHOT: OutcomeClass.SIGNAL,  # of the kill that follows it
}
"""By which class the service should call the end of an attempt that a fault has ended."""

COLUMNS = ("FAULT", "ATTEMPT", "BACK", "DOWN", "STEPS REPEATED", "TOLD AS", "RIGHT")


@dataclass(frozen=True, slots=True)
class Cost:
    """One fault and what came of it; None where it is not known, or there is none."""

    fault: str
    rank: int | None
    came_back: bool
    attempt_before: int
    attempt_after: int | None = None
    snapshot: int | None = None  # step of the damaged one
    downtime: float | None = None  # seconds from the fault to the next finished step
    steps_repeated: int | None = None
    outcome: Outcome | None = None  # of the attempt that the fault ended
    named_rightly: bool | None = None  # None: the fault ended no attempt, so there was nothing to name
    remark: str = ""

    def to_json(self) -> dict[str, Any]:
        """Without the outcome's evidence, which `rekindle show` has and which may be long."""
        told = None if self.outcome is None else {name: self.outcome.get(name) for name in Outcome.__annotations__}
        return asdict(replace(self, outcome=None)) | {"outcome": told}


def named_rightly(fault: str, rank: int | None, outcome: Outcome | None) -> bool:
    """Whether the service has told class and rank of what was done."""
    if outcome is None:
        return False
    return (outcome["class"], outcome.get("rank")) == (_NAMES[Fault(fault)].value, rank)


def steps_repeated(before: Attempt, resumed_from_step: int) -> int | None:
    """The steps that the attempt before had finished and the one after has to do again."""
    return None if before["last_step"] is None else max(0, before["last_step"] - resumed_from_step)


def row(cost: Cost) -> list[str]:
    """A line of the table at the end."""
    attempts = str(cost.attempt_before)
    if cost.attempt_after not in (None, cost.attempt_before):
        attempts += f" → {cost.attempt_after}"
    told = wording.ABSENT if cost.outcome is None else _told(cost.outcome)
    return [
        wording.fault(cost.fault, cost.rank, cost.snapshot),
        attempts,
        "yes" if cost.came_back else "no",
        wording.ABSENT if cost.downtime is None else f"{cost.downtime:.1f} s",
        wording.ABSENT if cost.steps_repeated is None else str(cost.steps_repeated),
        told,
        {None: wording.ABSENT, True: "yes", False: "NO"}[cost.named_rightly],
    ]


def sentence(cost: Cost) -> str:
    """One line, told as soon as it is known."""
    if not cost.came_back:
        return f"did not come back: {cost.remark}"
    parts = ["trained on all the while" if cost.fault == SERVER and not cost.downtime else _back(cost)]
    if cost.steps_repeated is not None:
        parts.append(f"{cost.steps_repeated} steps repeated")
    if cost.outcome is not None:
        parts.append(f"told as {_told(cost.outcome)}" + ("" if cost.named_rightly else ", which is WRONG"))
    return "; ".join([*parts, cost.remark] if cost.remark else parts)


def _back(cost: Cost) -> str:
    after = "" if cost.downtime is None else f" after {cost.downtime:.1f} s"
    return f"back{after}, attempt {cost.attempt_after}"


def _told(outcome: Outcome) -> str:
    rank = "" if outcome.get("rank") is None else f", rank {outcome['rank']}"
    return f"{sanitize_line(outcome['class'])}{rank}"


def all_came_back(costs: Sequence[Cost], planned: int) -> bool:
    return len(costs) == planned and all(cost.came_back for cost in costs)
