"""The ranks of a hang in groups that do the same, from the stacks that its keeper has collected."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle.contract.outcome import Outcome
from rekindle.contract.rank_traces import Frame, called_collective, main_stack, waits_for_peers
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.jobs.tracebacks import relative_to_code
from rekindle_service.run_readers.log_files import read_end

_MAX_RANKS = 4096  # of which the stacks are read
_MAX_STACK = 20_000  # bytes at the end of a rank's file in which its main thread is

Evidence = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StackGroup:
    """``what`` these ranks do, after their names: "wait in all_reduce #11 at train.py:42"."""

    ranks: list[int]
    what: str
    stack: list[Frame]  # of the first of them, innermost first


@dataclass(frozen=True, slots=True)
class _Activity:
    waits: bool
    what: str
    position: str
    collective: int | None = None  # number of the last one that was called


def stack_groups(run_dir: RunDir, attempt: int, hang: Outcome) -> list[StackGroup]:
    """The group of the culprit first, then by size. Empty where no rank has left a stack."""
    numbers = _collectives(hang.evidence)
    members: defaultdict[_Activity, list[int]] = defaultdict(list)
    stacks: dict[int, list[Frame]] = {}
    for rank, stack in _stacks(run_dir, attempt, hang.evidence):
        stacks[rank] = stack
        members[_activity(stack, run_dir.code, numbers.get(rank))].append(rank)
    ordered = sorted(members.items(), key=lambda item: (hang.rank not in item[1], -len(item[1]), item[1][0]))
    return [StackGroup(ranks, _words(activity, many=len(ranks) > 1), stacks[ranks[0]]) for activity, ranks in ordered]


def _stacks(run_dir: RunDir, attempt: int, evidence: Evidence) -> Iterator[tuple[int, list[Frame]]]:
    """Stacks by rank, ascending, from the evidence, or where that was cut for its length from the rank's own file."""
    recorded = evidence.get("stacks")
    dumps = recorded if isinstance(recorded, dict) else {}
    ranks = sorted({int(rank) for rank in dumps if rank.isdecimal() and len(rank) < 6})
    for rank in ranks[:_MAX_RANKS]:
        dump = dumps.get(str(rank))
        stack = main_stack(dump) if isinstance(dump, str) else []
        stack = stack or main_stack(_end_of(run_dir.root, run_dir.attempt(attempt).rank(rank).stacks))
        if stack:
            yield rank, stack


def _end_of(root: Path, path: Path) -> str:
    found = read_end(root, path, _MAX_STACK)
    return "" if found is None else found[1].decode(errors="replace")


def _collectives(evidence: Evidence) -> dict[int, int]:
    recorded = evidence.get("collectives")
    numbers = recorded if isinstance(recorded, dict) else {}
    return {
        int(rank): number
        for rank, number in numbers.items()
        if rank.isdecimal() and len(rank) < 6 and type(number) is int
    }


def _activity(stack: list[Frame], code: Path, collective: int | None) -> _Activity:
    position = _position(stack, code)
    if (called := called_collective(stack)) is not None:
        return _Activity(True, called, position, collective)
    if waits_for_peers(stack):
        return _Activity(True, "the backward pass", position, collective)
    return _Activity(False, "", position, collective)


def _position(stack: list[Frame], code: Path) -> str:
    """Position of the innermost frame in the user's code, else of the innermost of all."""
    for frame in stack:
        if (file := relative_to_code(frame.file, code)) is not None:
            return f"{file}:{frame.line}"
    return f"{stack[0].file}:{stack[0].line}"


def _words(activity: _Activity, *, many: bool) -> str:
    number = "" if activity.collective is None else f"#{activity.collective}"
    if activity.waits:
        verb, called = "wait" if many else "waits", f"{activity.what} {number}".rstrip()
        return f"{verb} in {called} at {activity.position}"
    after = f", after collective {number}" if number else ""
    return f"{'are' if many else 'is'} at {activity.position}{after}"
