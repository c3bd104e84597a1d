"""What can explain that two trainings differ, or that they cannot be compared: by evidence only."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from rekindle.contract.field_texts import Described
from rekindle.contract.files import read_json
from rekindle.contract.job import JobSpec
from rekindle.contract.run_dir.attempt_history import AttemptSummary
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.placeholders import read_arguments
from rekindle_service.jobs.packaging.code_manifest import FileDifference, differences
from rekindle_service.jobs.step_diff import Obstacle, Phase, StepComparison
from rekindle_service.submission import stored_values

_MAX_ENVIRONMENT = 1 << 20  # bytes
_MAX_LISTED = 6  # items in a sentence
_MAX_VALUE = 60  # characters of one
_MAX_FILES = 50
_MAX_DIFF = 4096  # characters of a file
_NOT_COMPARED = frozenset({"run", "at", "memory", "packages"})  # of what surrounds a run


class CauseKind(StrEnum):
    """What can explain a difference."""

    CODE = "code"
    ARGUMENTS = "arguments"
    VARIABLES = "variables"
    PACKAGES = "packages"
    MACHINE = "machine"
    DEVICES = "devices"
    WORLD_SIZE = "world size"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class Cause(Described):
    """Something in which two jobs differ."""

    kind: CauseKind
    """What it is."""
    text: str
    """What differs, this job first, in a sentence without values of environment variables."""


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A job, or one attempt of it; ``label`` is what sentences call it."""

    label: str
    spec: JobSpec
    run_dir: RunDir
    attempts: Sequence[AttemptSummary]

    def attempt(self, number: int | None) -> AttemptSummary | None:
        """The attempt of this number, by default the latest."""
        latest = self.attempts[-1] if self.attempts else None
        return next((each for each in self.attempts if each.number == number), latest)


def code_differences(one: ComparedRun, other: ComparedRun) -> list[FileDifference]:
    """The files that ``other`` has changed, at most 50, with a few kilobytes of changed lines of each."""
    found = differences(one.run_dir, other.run_dir)
    return [
        replace(each, path=_utf8(each.path), diff=None if each.diff is None else _cut(each.diff))
        for each in found[:_MAX_FILES]
    ]


def _cut(diff: str) -> str:
    return diff if len(diff) <= _MAX_DIFF else diff[:_MAX_DIFF].rpartition("\n")[0] + "\n…"


def find_causes(
    one: ComparedRun, other: ComparedRun, code: Sequence[FileDifference], found: StepComparison
) -> list[Cause]:
    """Everything on record in which the two differ."""
    difference = found.difference
    numbers = (None, None) if difference is None else (difference.attempt, difference.other_attempt)
    attempts = one.attempt(numbers[0]), other.attempt(numbers[1])
    mine, its = map(_launch, attempts)
    restarts = attempts if one.run_dir == other.run_dir else (None, None)  # else they name the directories of the jobs
    surroundings = _surroundings(one.run_dir), _surroundings(other.run_dir)
    packages = [_texts(each.get("packages")) for each in surroundings]
    machines = [_texts({key: each[key] for key in each.keys() - _NOT_COMPARED}) for each in surroundings]
    causes = {
        CauseKind.CODE: [f"{each.path} {each.change}" for each in code],
        CauseKind.ARGUMENTS: _changes(_arguments(one, restarts[0]), _arguments(other, restarts[1])),
        CauseKind.VARIABLES: _variables(one, other),
        CauseKind.PACKAGES: _changes(*packages) if all(packages) else [],
        CauseKind.MACHINE: _changes(*machines) if all(machines) else [],
        **{kind: [f"{mine[kind]} and {its[kind]}"] for kind in mine.keys() & its.keys() if mine[kind] != its[kind]},
        CauseKind.DATA: list(_data(found)),
    }
    return [Cause(kind, _sentence(kind, causes[kind])) for kind in CauseKind if causes.get(kind)]


def _sentence(kind: CauseKind, items: Sequence[str]) -> str:
    more = len(items) - _MAX_LISTED
    return _utf8(f"{kind}: {'; '.join(items[:_MAX_LISTED])}{f'; and {more} more' if more > 0 else ''}")


def _utf8(text: str) -> str:
    return text.encode(errors="replace").decode()


def _changes(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """``--lr 0.1 and 0.2``; torch comes first among packages."""
    names = sorted({**one, **other}, key=lambda name: (name != "torch", name))
    return [
        f"{name} {_value(one, name)} and {_value(other, name)}" for name in names if one.get(name) != other.get(name)
    ]


def _value(values: Mapping[str, str], name: str) -> str:
    text = values.get(name, "(absent)") or "(no value)"
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}…"


def _arguments(run: ComparedRun, attempt: AttemptSummary | None) -> dict[str, str]:
    """What runs, and its options with their values; a repeated one has all of them."""
    args = run.spec.args
    if attempt is not None and attempt.number > 1 and run.spec.on_restart:
        args = read_arguments(run.run_dir, attempt.number) or args
    found, option = {"interpreter": run.spec.python, run.spec.kind.value: run.spec.target}, ""
    for argument in args:
        if argument.startswith("--"):
            option, _, value = argument.partition("=")
        else:
            value = argument
        found[option or "arguments"] = f"{found.get(option or 'arguments', '')} {value}".strip()
    return found


def _variables(one: ComparedRun, other: ComparedRun) -> list[str]:
    """The names of variables whose values differ; values may be secrets."""
    mine, its = ({**each.spec.env_from, **stored_values(each.run_dir)} for each in (one, other))
    declared = [{*each.spec.env, *each.spec.env_from} for each in (one, other)]
    known = {name for name in mine.keys() & its.keys() if mine[name] != its[name]}
    return sorted(known | declared[0] ^ declared[1])


def _surroundings(run_dir: RunDir) -> dict[str, Any]:
    found = read_json(run_dir.surroundings, root=run_dir.root, max_bytes=_MAX_ENVIRONMENT)
    return found if isinstance(found, dict) else {}


def _texts(values: Any) -> dict[str, str]:
    scalars = values.items() if isinstance(values, dict) else ()
    return {name: str(value) for name, value in scalars if isinstance(value, str | int | float)}


def _launch(attempt: AttemptSummary | None) -> dict[CauseKind, str]:
    """The cards and the world size of an attempt; among CPU slots there is no difference."""
    if attempt is None:
        return {}
    cards = [name for name in attempt.devices if not name.startswith("cpu:")]
    return {CauseKind.DEVICES: ", ".join(cards) or "CPU", CauseKind.WORLD_SIZE: str(attempt.world_size)}


def _data(found: StepComparison) -> Iterator[str]:
    """What the digests say of the data of the first step that differs."""
    phases = {each.phase: each for each in found.difference.phases} if found.difference is not None else {}
    if (order := phases.get(Phase.ORDER)) is not None:
        if "samples" in order.names:
            yield "other samples are due at this step: another batch size or length of the data set"
        else:
            yield "the samples come in another order: another seed or length of the data set"
    elif Phase.BATCH in phases:
        yield "the same samples have other content: the data, or how it is prepared"


# --- why two jobs cannot be compared

_OBSTACLES = {
    Obstacle.OTHER_MODEL: "they train other models: no parameter has the same name",
    Obstacle.SHARDS: "each rank has digests of its own shards, and the world sizes differ",
    Obstacle.DAMAGED: "a file of digests was changed while it was read",
}


def why_incomparable(
    obstacle: Obstacle, one: tuple[ComparedRun, Sequence[int]], other: tuple[ComparedRun, Sequence[int]]
) -> str:
    """A sentence; each of the two with the steps that have digests."""
    if obstacle is Obstacle.NO_DIGESTS:
        clauses = [f"{run.label} has no digests, since {_no_digests(run)}" for run, steps in (one, other) if not steps]
    elif obstacle is Obstacle.NO_COMMON_STEP:
        spans = [f"{run.label} has digests of the steps {_span(steps)}" for run, steps in (one, other)]
        clauses = [f"no step has digests of both: {', '.join(spans)}"]
    else:
        clauses = [_OBSTACLES[obstacle]]
    return f"Nothing can be compared: {'; '.join(clauses)}."


def _no_digests(run: ComparedRun) -> str:
    if not run.attempts:
        return "it has not started"
    if all(each.last_step is None for each in run.attempts):
        return "its script reports no steps: only `rekindle.Run` writes digests"
    return "they are off, its script does not use `rekindle.Run`, or it ended before the first"


def _span(steps: Sequence[int]) -> str:
    """``100, 200 to 900``: the first two show the interval."""
    return ", ".join(f"{each:,}" for each in steps[:2]) + (f" to {steps[-1]:,}" if len(steps) > 2 else "")
