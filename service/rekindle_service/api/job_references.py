"""The job or experiment that a person names: by id, number, name or the start of an id."""

from rekindle_service.api.problems import ProblemError
from rekindle_service.store import Store
from rekindle_service.store.job_queries import MIN_ID_PREFIX, Lookup, Row
from rekindle_service.store.tables import Experiment, Job
from rekindle_service.suggestions import closest

_SHOWN = 64  # characters of a reference
_MAX_HINTS = 3
_LATEST = 5


def resolve_job(store: Store, reference: str, readable_by: str | None) -> Job:
    """The one job that ``reference`` names among all that may be read.

    Raises ProblemError: 404 with the names most like it, or 409 where several ids start with it.
    """
    return _resolve("job", store.lookup, reference, readable_by, (409, "ambiguous-job"))


def resolve_experiment(store: Store, reference: str, readable_by: str | None) -> Experiment:
    """The one experiment that ``reference`` names among all that may be read. Raises ProblemError: 404."""
    return _resolve("experiment", store.experiments.lookup, reference, readable_by, (404, "unknown-experiment"))


def _resolve(
    kind: str, lookup: Lookup[Row], reference: str, readable_by: str | None, ambiguous: tuple[int, str]
) -> Row:
    found = lookup.matches(reference, readable_by)
    if len(found) == 1:
        return found[0]
    if not found:
        raise ProblemError(404, f"unknown-{kind}", _unknown(kind, lookup, reference, readable_by))
    listed = ", ".join(f"{each.id} (#{each.number} {each.name})" for each in found)
    detail = f"{len(found)} ids or more start with {reference!r}: {listed}. Give more of the id, or the number"
    raise ProblemError(*ambiguous, detail)


def _unknown(kind: str, lookup: Lookup[Row], reference: str, readable_by: str | None) -> str:
    shown = reference[:_SHOWN] + "…" * (len(reference) > _SHOWN)
    hint = _hint(kind, reference[:_SHOWN], lookup.recent_names(readable_by))
    is_short = len(reference) < MIN_ID_PREFIX and reference.isalnum() and not reference.isdecimal()
    short = f" (of an id, give at least {MIN_ID_PREFIX} characters)" if is_short else ""
    return f"No {kind} is called {shown!r}, nor has it as id or number{short}; {hint}"


def _hint(kind: str, reference: str, names: dict[str, int]) -> str:
    """The names that are most like ``reference``, upper or lower case; else the latest."""
    by_folded = {name.casefold(): name for name in reversed(names)}  # the latest of those that differ only in case
    alike = [by_folded[each] for each in closest(reference.casefold(), by_folded)[:_MAX_HINTS]]
    listed = [f"{name!r} (#{names[name]})" for name in alike or list(names)[:_LATEST]]
    if alike:
        return f"did you mean {' or '.join(listed)}?"
    return f"the latest are {', '.join(listed)}" if listed else f"there is no {kind} yet"
