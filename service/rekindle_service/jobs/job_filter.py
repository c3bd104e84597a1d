"""The filter line of job lists: ``state:failed owner:ann tag:paper lr>0.01 resnet``."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import eq, ge, gt, le, lt, ne
from typing import Any, NamedTuple

from rekindle.contract.states import TERMINAL, JobState
from rekindle_service.store import Store
from rekindle_service.store.job_queries import NO_CONDITIONS, JobConditions, JobKey, Mark, key_of
from rekindle_service.store.tables import Job
from rekindle_service.submission import FieldError, SubmissionError
from rekindle_service.suggestions import did_you_mean

_KEYS = ("state", "is", "tag", "owner", "experiment")
_STATES = {**{state.value: frozenset({state}) for state in JobState}, "ended": frozenset(TERMINAL)}
_WORD = re.compile(r'([A-Za-z]\w*:)?"([^"]*)"|(\S+)')
_KEYED = re.compile(r"([A-Za-z]\w*):(.+)")
_PARAMETER = re.compile(r"-{0,2}([A-Za-z_][\w.-]*?)(<=|>=|!=|=|<|>)(.+)")
_NUMBER = re.compile(r"#(\d{1,18})")
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}

_SCANNED = 2000  # jobs whose parameters are compared for one page
_BATCH = 200


@dataclass(frozen=True, slots=True)
class ParameterRule:
    """``lr>0.01``: about the option of the script, or the parameter of its experiment, that has this name."""

    name: str
    operator: str
    value: str

    def holds(self, job: Job) -> bool:
        """False where the job has no such parameter, or one that cannot be compared with the value."""
        found = _parameter(job, self.name)
        if found is None:
            return False
        number, wanted = _number(found), _number(self.value)
        if number is not None and wanted is not None:
            return _OPERATORS[self.operator](number, wanted)
        return self.operator in ("=", "!=") and _OPERATORS[self.operator](found, self.value)


@dataclass(frozen=True, slots=True)
class JobFilter:
    """What a filter line means. ``name_part`` is the text of all words that are nothing else."""

    conditions: JobConditions = NO_CONDITIONS
    parameters: tuple[ParameterRule, ...] = ()
    name_part: str | None = None


class Found(NamedTuple):
    """Jobs that match, and where to continue, None at the end of the list."""

    keys: list[JobKey]
    cursor: int | None


def parse_filter(line: str) -> JobFilter:
    """What is in quotes is a part of the name, whatever it looks like. Raises SubmissionError."""
    plain: list[str] = []
    conditions, parameters = NO_CONDITIONS, []
    for key, quoted, word in _WORD.findall(line):
        if not word and not key:
            plain.append(quoted)
        elif keyed := _KEYED.fullmatch(word or f"{key}{quoted}"):
            conditions = _with(conditions, keyed[1].lower(), keyed[2])
        elif number := _NUMBER.fullmatch(word):
            conditions = replace(conditions, number=int(number[1]))
        elif rule := _PARAMETER.fullmatch(word):
            parameters.append(ParameterRule(rule[1], rule[2], rule[3]))
        else:
            plain.append(word)
    return JobFilter(conditions, tuple(parameters), " ".join(plain) or None)


def _with(conditions: JobConditions, key: str, value: str) -> JobConditions:
    match key:
        case "state":
            each = [_STATES[_known(key, word, list(_STATES))] for word in value.split(",")]
            return replace(conditions, states=frozenset().union(*each))
        case "is":
            return replace(conditions, marks=conditions.marks | {Mark(_known(key, value, list(Mark)))})
        case "tag":
            return replace(conditions, tags=conditions.tags | {value})
        case "owner":
            return replace(conditions, owner=value)
        case "experiment":
            return replace(conditions, experiment=value)
    hint = f'{did_you_mean(key, _KEYS)} To find it in names, use quotes: "{key}:{value}"'
    raise SubmissionError([FieldError("q", f"has no key {key}", f"{key}:{value}", hint)])


def _known(key: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise SubmissionError([FieldError("q", f"{key} cannot be {value}", value, did_you_mean(value, known))])
    return value


def find_jobs(store: Store, wanted: JobFilter, *, limit: int, before: int | None, **equal: Any) -> Found:
    """The latest ``limit`` jobs that match before the number ``before``; ``equal``: see ``JobLists.jobs``."""
    equal |= {"conditions": wanted.conditions, "name_part": wanted.name_part}
    if wanted.parameters:
        return _scan(store, wanted.parameters, limit, before, equal)
    keys = store.lists.keys(limit=limit + 1, before=before, **equal)
    return Found(keys, None) if len(keys) <= limit else Found(keys[:limit], keys[limit - 1].number)


def _scan(
    store: Store, rules: Sequence[ParameterRule], limit: int, before: int | None, equal: Mapping[str, Any]
) -> Found:
    """Parameters are in no index: 2000 jobs are read for them at most. Then there may be fewer jobs and a cursor."""
    found: list[JobKey] = []
    for _ in range(_SCANNED // _BATCH):
        batch = store.lists.jobs(limit=_BATCH, before=before, **equal)
        found += [key_of(job) for job in batch if all(rule.holds(job) for rule in rules)]
        if len(found) > limit:
            return Found(found[:limit], found[limit - 1].number)
        if len(batch) < _BATCH:
            return Found(found, None)
        before = batch[-1].number
    return Found(found, before)


def _parameter(job: Job, name: str) -> str | None:
    """Value of the last option ``--name value``, ``--name=value`` or ``-name value``; "yes" for one without a value."""
    found, wanted = None, _bare(name)
    for key, value in job.trial.get("parameters", {}).items():
        if _bare(key) == wanted:
            found = "yes" if value is True else str(value)
    for argument, following in pairwise([*job.spec.args, "-"]):
        option, has_value, value = argument.partition("=")
        if option.startswith("-") and _bare(option) == wanted:
            is_flag = following.startswith("-") and _number(following) is None
            found = value if has_value else "yes" if is_flag else following
    return found


def _bare(option: str) -> str:
    return option.lstrip("-").removesuffix("=").replace("_", "-")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
