"""What is planted, in which rank, and what the outcome must say: for the tests and ``tests/bench/mismatches.py``."""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.waiting import until
from faults.faulty_run import SCRIPTS, FaultyRun
from rekindle.contract.run_dir.journal import RecordType

SCRIPT = "mismatches.py"
KINDS = (
    "early_exit", "unequal_batches", "run_break", "other_op", "other_shape", "other_dtype", "other_group", "sleep",
    "spin", "stop", "loader", "evaluation",
)  # fmt: skip
_EPOCH_END = "run"  # function in which a rank waits that has left its epoch early


@dataclass(frozen=True, slots=True)
class Verdict:
    """One mismatch and what the outcome reports of it."""

    kind: str
    outcome: dict[str, Any]
    seconds: float | None  # from the fault to the end of the attempt; None where it is not known

    @property
    def is_right(self) -> bool:
        """The rank and, where one can be known, the function of the line."""
        if self.outcome["rank"] != (0 if self.kind == "evaluation" else 1):
            return False
        if "Connection closed" in self.outcome["message"]:
            return False
        if self.kind == "stop":  # a stopped process cannot say where it is
            return True
        return self.function in {"unequal_batches": (_EPOCH_END,)}.get(self.kind, (self.kind,))

    @property
    def function(self) -> str | None:
        """The function that holds the named line."""
        if self.outcome["line"] is None or not self.outcome["file"]:
            return None
        script = "breaking.py" if self.kind == "run_break" else SCRIPT
        return enclosing_function((SCRIPTS / script).read_text().splitlines(), self.outcome["line"])


def enclosing_function(source: list[str], line: int) -> str:
    """Name of the function or method that holds ``line``."""
    heads = [text.strip() for text in source[:line] if text.strip().startswith("def ")]
    return heads[-1].removeprefix("def ").partition("(")[0]


def plain_limit(*, reports: bool, warm: bool) -> float | None:
    """``hang_timeout`` for scripts that report nothing, which have 300 s otherwise; a cold start is slower."""
    if reports:
        return None
    return 5.0 if warm else 30.0


def begin(directory: Path, kind: str, *, reports: bool, warm: bool, **spec: Any) -> FaultyRun:
    """A run with one attempt, in which ``kind`` happens."""
    name = f"{kind}-{reports}-{warm}"
    if kind == "run_break":
        run = FaultyRun(directory / name, "breaking.py", warm=warm, max_failures=1, **spec)
    else:
        mode = "reports" if reports else "plain"
        run = FaultyRun(directory / name, SCRIPT, mode, kind, warm=warm, max_failures=1, **spec)
    run.start()
    return run


@dataclass(frozen=True, slots=True)
class ShownStall:
    """What was shown of a mismatch before it was over, or how the attempt ended where that came first."""

    kind: str
    seconds: float | None  # from the fault until it was shown
    rank: int | None
    sentence: str
    ended: float | None  # seconds from the fault; None where the attempt has not ended soon

    def row(self) -> str:
        shown, ended = ("-" if each is None else f"{each:.1f}" for each in (self.seconds, self.ended))
        return f"{shown} | {self.rank} | {self.sentence} | {ended}"


def shown_stall(run: FaultyRun, kind: str, patience: float) -> ShownStall:
    """Wait until a stall is shown, then ``patience`` seconds for the end of the attempt."""

    def find(record: RecordType) -> Any:
        return next(iter(run.records(record)), None)

    until(lambda: find(RecordType.STALLED) or find(RecordType.ATTEMPT_ENDED), "a stall is shown", 900)
    with suppress(AssertionError):
        until(lambda: find(RecordType.ATTEMPT_ENDED), "the attempt has ended", patience)
    stalled, ended = find(RecordType.STALLED), find(RecordType.ATTEMPT_ENDED)
    text = run.log(0, attempt=1) + run.log(1, attempt=1)
    began = float(re.findall(r"^guilty at ([\d.]+)$", text, re.MULTILINE)[0]) if kind != "run_break" else None
    shown = None if stalled is None or began is None else stalled.at - began
    rank, sentence = (stalled.rank, stalled.sentence) if stalled else (ended.outcome.rank, ended.outcome.message)
    return ShownStall(kind, shown, rank, sentence, None if ended is None or began is None else ended.at - began)


def verdicts(run: FaultyRun, kinds: tuple[str, ...]) -> list[Verdict]:
    """Verdicts on the first attempts of ``run``, one for each of ``kinds``."""
    ends = run.records(RecordType.ATTEMPT_ENDED)
    found = []
    for number, (kind, end) in enumerate(zip(kinds, ends, strict=False), start=1):
        text = run.log(0, attempt=number) + run.log(1, attempt=number)
        began = re.findall(r"^guilty at ([\d.]+)$", text, re.MULTILINE)
        seconds = end.at - float(began[0]) if began else None
        found.append(Verdict(kind, end.outcome.to_json(), seconds))
    return found


def table_row(verdict: Verdict, *, reports: bool, warm: bool) -> str:
    place = f"{verdict.outcome['file']}:{verdict.outcome['line']}"
    seconds = "-" if verdict.seconds is None else f"{verdict.seconds:.1f}"
    cells = [
        verdict.kind, "reports steps" if reports else "plain", "warm" if warm else "cold", verdict.outcome["class"],
        verdict.outcome["rank"], place, seconds, "yes" if verdict.is_right else "NO",
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"
