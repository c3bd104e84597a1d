"""Forty faults in rank 1, one after another in one training: which does a tool survive, and does it name the cause?

A fault is survived if the training does the next step within ``PATIENCE`` seconds and nobody helps. Where it is not, a
new run begins with the next fault. Four more are no faults: rank 1 is busy for 15 s with something healthy, while a
hang is to be found after 20 s; a process that is restarted then is a false alarm.
"""

import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from peers import Run, Start
from side_by_side import Steps

from faults.test_corpus import CORPUS

PATIENCE = 60.0
HANG = 20.0  # seconds after which a hang is to be found
HANGS = ("sleep", "stop", "spin", "skip_collective", "dead_loader")
HEALTHY = ("evaluates silently", "evaluates and prints", "computes", "slow loader")
_ALIKE = {  # for whoever starts the ranks the same as others, or with another end from time to time
    "no message", "two lines", "hostile", "long message", "stop iteration", "unicode", "json", "not implemented",
    "killed loader", "SIGXCPU", "processor time",
}  # fmt: skip
PLANTED = {each.name: each for each in CORPUS if each.name not in _ALIKE}
NAMES = (*PLANTED, *HANGS)  # 40
_ARGS = ["--every=4", "--pause=0.05", "--steps=1000000"]
_RANK = re.compile(r"\[rank(\d)\]|local_rank: (\d)|\brank[ =:]+(\d)", re.IGNORECASE)
_CODES = {
    "exit 3": r"code\W*3\b|SystemExit: 3",
    "exit text": "nothing to train",
    "_exit 7": r"code\W*7\b",
    "_exit 0": r"code\W*0\b",
}
_PLACE = r"(corpus|plain_ddp)\.py\D{1,10}\d"


@dataclass
class Verdict:
    """How a fault ended; ``back``: rank 1 trains again; ``again``: steps that were done a second time."""

    name: str
    survived: bool
    back: bool = False
    again: int = 0
    restarted: bool = False
    named: bool = False


def plant(start: Start, directory: Path, names: tuple[str, ...] = (*NAMES, *HEALTHY)) -> list[Verdict]:
    """Every fault strikes once, in as many runs as it takes."""
    verdicts: list[Verdict] = []
    while left := names[len(verdicts) :]:
        place = directory / str(len(verdicts))
        place.mkdir(parents=True)
        run = start(place, [*_ARGS, f"--faults={','.join(left)}"], HANG)
        try:
            found = _watch(run, place, len(left))
            said = run.output()
        finally:
            run.close()
        if not found:
            print(said[-2000:], flush=True)
            raise RuntimeError("it did not train until the next fault")
        for verdict in found:
            verdict.named = is_named(_segment(said, verdict.name), verdict.name, own_log="torchft" in directory.name)
            print(f"{directory.name}: {verdict}", flush=True)
        (directory / f"output-{len(verdicts)}.txt").write_text(said)
        verdicts += found
    return verdicts


def _watch(run: Run, place: Path, count: int) -> list[Verdict]:
    """The verdicts of the first faults of a run, the last of them one after which rank 1 did not come back."""
    verdicts: list[Verdict] = []
    faults = place / "faults.log"
    while len(verdicts) < count and _until(lambda: len(_lines(faults)) > len(verdicts), run):
        step, _, at, name = _lines(faults)[len(verdicts)].split(" ", 3)
        verdicts.append(_judged(run, place, name, int(step), float(at)))
        if not verdicts[-1].back:
            break
    return verdicts


def _judged(run: Run, place: Path, name: str, step: int, at: float) -> Verdict:
    ranks = [Steps(place, rank) for rank in (0, 1)]
    survived = _until(lambda: any(each.last()[0] > step and each.last()[2] > at for each in ranks), run)
    back = survived and _until(lambda: ranks[1].last()[2] > at, run)
    entries = [each.all() for each in ranks]
    old = {pid for each in entries for _, pid, when in each if when <= at}
    new = {pid for each in entries for _, pid, when in each if when > at} - old
    again = {found for found, pid, _ in entries[0] if pid in new and found <= step}
    return Verdict(name, survived, back, len(again), restarted=bool(new))


def _until(condition: Callable[[], bool], run: Run) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not (reached := condition()) and time.monotonic() < deadline and run.alive():
        time.sleep(0.1)
    return reached


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _segment(said: str, name: str) -> str:
    """What was said from this fault to the next."""
    return said.rpartition(f"planted: {name}\n")[2].partition("planted: ")[0]


def is_named(said: str, name: str, *, own_log: bool = False) -> bool:
    """Whether a text names the cause in rank 1: an exception with its line before one of another rank, or the signal.

    ``own_log``: the text is of a torchrun that has this rank alone, and calls it rank 0.
    """
    culprit, expected = 0 if own_log else 1, _expected(name)
    raises = name in PLANTED and PLANTED[name].exception is not None and name not in _CODES
    of, has_place = culprit if own_log else None, not raises
    for line in said.splitlines():
        if found := _RANK.search(line):
            of = int(next(filter(None, found.groups())))
        if of == culprit:
            has_place = has_place or re.search(_PLACE, line) is not None
            if has_place and re.search(expected, line):
                return True
        elif raises and of is not None and re.search(r"\w(Error|Exception)\b", line):
            return False
    return False


def _expected(name: str) -> str:
    """Pattern of the line that names it; for a hang that of the line where the rank is."""
    if name in _CODES:
        return _CODES[name]
    planted = PLANTED.get(name)
    if planted is None:
        return _PLACE
    if planted.signal:
        return rf"{planted.signal}\b|code\W*-{signal.Signals[planted.signal].value}\b"
    return rf"\b({planted.exception})\b"


def summary(verdicts: list[Verdict]) -> dict[str, Any]:
    faults, healthy = verdicts[: len(NAMES)], verdicts[len(NAMES) :]
    survived = [verdict for verdict in faults if verdict.survived]
    return {
        "survived": len(survived),
        "named": sum(verdict.named for verdict in faults),
        "again": round(sum(verdict.again for verdict in survived) / max(len(survived), 1), 1),
        "false alarms": sum(verdict.restarted or not verdict.survived for verdict in healthy),
        "verdicts": [asdict(verdict) for verdict in verdicts],
    }
