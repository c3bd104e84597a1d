"""What a fault did to the job and what it cost. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rekindle.contract.chaos import Fault
from rekindle.contract.outcome import OutcomeClass
from rekindle_service.cli import formatting
from rekindle_service.cli.chaos.schedule import SERVER
from rekindle_service.cli.formatting import ABSENT
from rekindle_service.client import Outcome
from rekindle_service.sanitize import sanitize_line

_EXPECTED = {
    Fault.STOP: OutcomeClass.HANG,
    Fault.RAISE: OutcomeClass.USER_ERROR,
    Fault.HANG: OutcomeClass.HANG,
    Fault.OOM: OutcomeClass.OOM,
    Fault.KEEPER: OutcomeClass.KEEPER_LOST,
}
"""The outcome class of an attempt that the fault has ended; every other fault ends it by a signal."""

COLUMNS = ("FAULT", "ATTEMPT", "RECOVERED", "DOWN", "REPLAYED", "DIAGNOSIS", "CORRECT")


@dataclass(frozen=True, slots=True)
class FaultReport:
    """One fault and its effect; None where that is not known or does not apply."""

    fault: str
    rank: int | None
    recovered: bool
    attempt_before: int
    attempt_after: int | None = None
    snapshot: int | None = None  # step of the damaged one
    downtime: float | None = None  # seconds from the fault to the next finished step
    replayed_steps: int | None = None
    outcome: Outcome | None = None  # of the attempt that the fault ended
    diagnosis_correct: bool | None = None  # None: the fault ended no attempt
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Without the outcome's evidence, which `rekindle show` has and which may be long."""
        report = asdict(self)
        if self.outcome is not None:
            report["outcome"].pop("evidence", None)
        return report


def diagnosis_correct(fault: str, rank: int | None, outcome: Outcome | None) -> bool:
    """Whether the outcome names the class and the rank of the fault."""
    if outcome is None:
        return False
    return (outcome["class"], outcome.get("rank")) == (_EXPECTED.get(Fault(fault), OutcomeClass.SIGNAL), rank)


def row(report: FaultReport) -> list[str]:
    attempts = str(report.attempt_before)
    if report.attempt_after not in (None, report.attempt_before):
        attempts += f" → {report.attempt_after}"
    return [
        formatting.fault(report.fault, report.rank, report.snapshot),
        attempts,
        "yes" if report.recovered else "no",
        ABSENT if report.downtime is None else f"{report.downtime:.1f} s",
        ABSENT if report.replayed_steps is None else str(report.replayed_steps),
        ABSENT if report.outcome is None else _diagnosis(report.outcome),
        {None: ABSENT, True: "yes", False: "NO"}[report.diagnosis_correct],
    ]


def sentence(report: FaultReport) -> str:
    """One line, printed as soon as the effect is known."""
    if not report.recovered:
        return f"did not recover: {report.note}"
    if report.fault == SERVER and not report.downtime:
        parts = ["training was not interrupted"]
    else:
        after = "" if report.downtime is None else f" after {report.downtime:.1f} s"
        parts = [f"recovered{after}, attempt {report.attempt_after}"]
    if report.replayed_steps is not None:
        parts.append(f"{report.replayed_steps} steps replayed")
    if report.outcome is not None:
        wrong = "" if report.diagnosis_correct else ", which is WRONG"
        parts.append(f"diagnosed as {_diagnosis(report.outcome)}{wrong}")
    return formatting.join([*parts, report.note])


def _diagnosis(outcome: Outcome) -> str:
    rank = "" if outcome.get("rank") is None else f", rank {outcome['rank']}"
    return f"{sanitize_line(outcome['class'])}{rank}"


def all_recovered(reports: Sequence[FaultReport], planned: int) -> bool:
    return len(reports) == planned and all(report.recovered for report in reports)
